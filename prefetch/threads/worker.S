// Starts the worker of a pair of threads, and keeps its keeper asleep (background_thread.cc).
// Worker and keeper share one thread-local storage, so while its worker runs, the keeper must not
// execute any compiled code, only the code below.
//
//   long cube_start_worker(uint32_t* state, void* stack, void* thread_pointer, long stays_asleep)
//     Starts a thread that shares everything with this one, fd table included. The thread takes a
//     function and its argument from its stack. The kernel stores its thread id in *state, and 0
//     when it has gone. Returns that id or a negative errno; after success with `stays_asleep`, it
//     first sleeps like cube_keep_asleep.
//   void cube_keep_asleep(uint32_t* state, uint32_t* told)
//     Stores 1 in *told and wakes the threads that wait for it, unless `told` is null. Returns when
//     *state is 0 or ~0.
//
// CLONE_VM FS FILES SIGHAND THREAD SYSVSEM SETTLS PARENT_SETTID CHILD_CLEARTID: the flags of
// pthread_create, which sandboxes know.
#define WORKER_FLAGS 0x3d0f00
#if defined(__x86_64__)
        .text
        .globl  cube_start_worker
        .hidden cube_start_worker
        .type   cube_start_worker, @function
cube_start_worker:
        .cfi_startproc
        endbr64
        movq    %rcx, %r9
        movq    %rdi, %r10
        movq    %rdx, %r8
        movq    %rdi, %rdx
        movl    $WORKER_FLAGS, %edi
        movl    $56, %eax                 // clone
        syscall
        testq   %rax, %rax
        jz      1f
        js      2f
        testq   %r9, %r9
        jz      2f
        movq    %r10, %rdi
        jmp     3f
1:      .cfi_undefined rip
        xorl    %ebp, %ebp
        popq    %rax
        popq    %rdi
        call    *%rax
        hlt
2:      ret
        .cfi_endproc
        .size   cube_start_worker, .-cube_start_worker

        .globl  cube_keep_asleep
        .hidden cube_keep_asleep
        .type   cube_keep_asleep, @function
cube_keep_asleep:
        .cfi_startproc
        endbr64
        testq   %rsi, %rsi
        jz      3f
        movq    %rdi, %r9
        movq    %rsi, %rdi
        movl    $1, %eax
        xchgl   %eax, (%rdi)
        movl    $1, %esi                  // FUTEX_WAKE
        movl    $0x7fffffff, %edx
        movl    $202, %eax                // futex
        syscall
        movq    %r9, %rdi
3:      movl    (%rdi), %edx
        leal    1(%rdx), %eax
        cmpl    $1, %eax                  // 0 or ~0
        jbe     4f
        xorl    %esi, %esi                // FUTEX_WAIT
        xorl    %r10d, %r10d
        movl    $202, %eax
        syscall
        jmp     3b
4:      xorl    %eax, %eax
        ret
        .cfi_endproc
        .size   cube_keep_asleep, .-cube_keep_asleep
#elif defined(__aarch64__)
        .text
        .globl  cube_start_worker
        .hidden cube_start_worker
        .type   cube_start_worker, %function
cube_start_worker:
        .cfi_startproc
        hint    #34                       // bti c
        mov     x5, x3
        mov     x6, x0
        mov     x3, x2
        mov     x2, x0
        mov     x4, x0
        mov     w0, #(WORKER_FLAGS & 0xffff)
        movk    w0, #(WORKER_FLAGS >> 16), lsl #16
        mov     x8, #220                  // clone
        svc     #0
        cbz     x0, 1f
        tbnz    x0, #63, 2f
        cbz     x5, 2f
        mov     x0, x6
        b       3f
1:      .cfi_undefined x30
        mov     x29, xzr
        mov     x30, xzr
        ldp     x9, x0, [sp], #16
        blr     x9
        brk     #1
2:      ret
        .cfi_endproc
        .size   cube_start_worker, .-cube_start_worker

        .globl  cube_keep_asleep
        .hidden cube_keep_asleep
        .type   cube_keep_asleep, %function
cube_keep_asleep:
        .cfi_startproc
        hint    #34                       // bti c
        cbz     x1, 3f
        mov     x6, x0
        mov     x0, x1
        mov     w7, #1
        stlr    w7, [x0]
        mov     x1, #1                    // FUTEX_WAKE
        mov     x2, #0x7fffffff
        mov     x8, #98                   // futex
        svc     #0
        mov     x0, x6
3:      mov     x6, x0
        ldar    w2, [x0]
        add     w7, w2, #1
        cmp     w7, #1                    // 0 or ~0
        b.ls    4f
        mov     x1, #0                    // FUTEX_WAIT
        mov     x3, #0
        mov     x8, #98
        svc     #0
        mov     x0, x6
        b       3b
4:      mov     x0, #0
        ret
        .cfi_endproc
        .size   cube_keep_asleep, .-cube_keep_asleep
#endif
        .section .note.GNU-stack, "", %progbits
