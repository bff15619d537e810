// A library without tables for unwinders, as one written in assembly may be. Unwinders search its
// file for such tables.
extern "C" void profile_host_call(void (*function)()) {
  function();
  // Makes a call with a frame, not a jump.
  __asm__ volatile("");
}
