// A library without tables for unwinders, as one written in assembly may be. Unwinders search its
// file for such tables.
extern "C" void profile_host_call(void (*function)()) {
  function();
  // Not a jump to it, but a call with a frame.
  __asm__ volatile("");
}
