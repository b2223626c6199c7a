export const VERSION = "2.4.1";
