import assert from "node:assert";
import test from "node:test";

import { format } from "../src/format.js";

test("minutes and seconds", () => {
  assert.equal(format(90), "1:30");
  assert.equal(format(5), "0:05");
});
