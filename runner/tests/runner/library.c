/* A library that a program can need. */
int nothing(void) { return 0; }
