// A library without tables for unwinders, as one of assembly may be. They look for such tables in
// its file.
extern "C" void profile_host_call(void (*function)()) {
  function();
  // Not a jump to it, but a call with a frame.
  __asm__ volatile("");
}
