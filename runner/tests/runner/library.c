/* Any library. */
int nothing(void) { return 0; }
