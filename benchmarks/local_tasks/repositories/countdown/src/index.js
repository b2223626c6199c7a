import { format } from "./format.js";
import { VERSION } from "./version.js";

const TICK_MS = 250;

export class Countdown {
  constructor(seconds, { onTick = () => {}, onDone = () => {} } = {}) {
    this.left = seconds;
    this.onTick = onTick;
    this.onDone = onDone;
  }

  start() {
    const end = Date.now() + this.left * 1000;
    this.timer = setInterval(() => this.tick(end), TICK_MS);
  }

  tick(end) {
    this.left = Math.max(0, Math.ceil((end - Date.now()) / 1000));
    this.onTick(this.left);
    if (this.left === 0) {
      this.stop();
      this.onDone();
    }
  }

  stop() {
    clearInterval(this.timer);
  }
}

export { format, VERSION };
