// The personality routine of all C++ functions of the library: the unwinder calls it for each of
// their frames. A thread that ends (pthread_exit, or a cancellation) unwinds its whole stack. If a
// signal handler ends its thread, the handler may have interrupted a function of the library at any
// instruction, and libstdc++'s routine would end the program there (std::terminate). So the frames
// that the handler has interrupted are left without cleanup, as by siglongjmp. Thread-safe and
// async-signal-safe.
#include <unwind.h>

#include "cache/base/process/signal_frame.h"

namespace {

bool is_left_by_handler(_Unwind_Context* frame) {
  int is_interrupted = 0;
  _Unwind_GetIPInfo(frame, &is_interrupted);
  // The handler may have interrupted a function that was called from this frame.
  return is_interrupted != 0 || cube::base::may_be_in_handler(_Unwind_GetCFA(frame));
}

}  // namespace

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier)
// The linker replaces the references to __gxx_personality_v0 (--wrap).
_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class kind,
                                                _Unwind_Exception* unwinding,
                                                _Unwind_Context* frame);

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class kind,
                                                _Unwind_Exception* unwinding,
                                                _Unwind_Context* frame) {
  if ((actions & _UA_FORCE_UNWIND) != 0 && is_left_by_handler(frame)) return _URC_CONTINUE_UNWIND;
  return __real___gxx_personality_v0(version, actions, kind, unwinding, frame);
}
// NOLINTEND(bugprone-reserved-identifier)
}
