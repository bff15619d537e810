// Hooks that cannot be C functions. Each hook calls a function of this library, which returns the
// address of libc's function, and jumps to this address.
//   vfork   A function around it would return twice over one stack frame. Before the jump, what the
//           child would inherit is materialized, and the thread is marked (process.h).
//   dlopen  Libc takes the library search path (RPATH) from the library that contains the return
//           address. The path of a library that only we have is replaced.
//   dlsym   RTLD_NEXT and RTLD_DEFAULT search from the library that contains the return address.
//           Our function may also return the answer itself: the address that it returns is then
//           null, and the answer is in the second register.
// cube_shim_NAME is the same function under a name that only this library uses.
#if defined(__x86_64__)
        .text
        .globl  vfork
        .type   vfork, @function
        .globl  cube_shim_vfork
        .hidden cube_shim_vfork
        .set    cube_shim_vfork, vfork
vfork:
        .cfi_startproc
        endbr64
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    cube_shim_before_vfork
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   vfork, .-vfork
        .globl  __vfork
        .set    __vfork, vfork

        .globl  dlopen
        .type   dlopen, @function
        .globl  cube_shim_dlopen
        .hidden cube_shim_dlopen
        .set    cube_shim_dlopen, dlopen
dlopen:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        leaq    16(%rsp), %rdi            // the path, which may be replaced
        call    cube_shim_before_dlopen
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   dlopen, .-dlopen

        .globl  dlsym
        .type   dlsym, @function
        .globl  cube_shim_dlsym
        .hidden cube_shim_dlsym
        .set    cube_shim_dlsym, dlsym
dlsym:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        movq    24(%rsp), %rdx            // the return address
        call    cube_shim_before_dlsym
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rax, %rax
        je      1f
        jmp     *%rax
1:      movq    %rdx, %rax
        ret
        .cfi_endproc
        .size   dlsym, .-dlsym
#elif defined(__aarch64__)
        .text
        .globl  vfork
        .type   vfork, %function
        .globl  cube_shim_vfork
        .hidden cube_shim_vfork
        .set    cube_shim_vfork, vfork
vfork:
        .cfi_startproc
        hint    #34                       // bti c
        stp     x29, x30, [sp, #-16]!
        .cfi_adjust_cfa_offset 16
        .cfi_offset x29, -16
        .cfi_offset x30, -8
        mov     x29, sp
        bl      cube_shim_before_vfork
        mov     x16, x0
        ldp     x29, x30, [sp], #16
        .cfi_restore x29
        .cfi_restore x30
        .cfi_adjust_cfa_offset -16
        br      x16
        .cfi_endproc
        .size   vfork, .-vfork
        .globl  __vfork
        .set    __vfork, vfork

        .globl  dlopen
        .type   dlopen, %function
        .globl  cube_shim_dlopen
        .hidden cube_shim_dlopen
        .set    cube_shim_dlopen, dlopen
dlopen:
        .cfi_startproc
        hint    #34                       // bti c
        stp     x29, x30, [sp, #-32]!
        .cfi_adjust_cfa_offset 32
        .cfi_offset x29, -32
        .cfi_offset x30, -24
        stp     x0, x1, [sp, #16]
        mov     x29, sp
        add     x0, sp, #16               // the path, which may be replaced
        bl      cube_shim_before_dlopen
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore x29
        .cfi_restore x30
        .cfi_adjust_cfa_offset -32
        br      x16
        .cfi_endproc
        .size   dlopen, .-dlopen

        .globl  dlsym
        .type   dlsym, %function
        .globl  cube_shim_dlsym
        .hidden cube_shim_dlsym
        .set    cube_shim_dlsym, dlsym
dlsym:
        .cfi_startproc
        hint    #34                       // bti c
        stp     x29, x30, [sp, #-32]!
        .cfi_adjust_cfa_offset 32
        .cfi_offset x29, -32
        .cfi_offset x30, -24
        stp     x0, x1, [sp, #16]
        mov     x29, sp
        mov     x2, x30                   // the return address
        bl      cube_shim_before_dlsym
        mov     x16, x0
        mov     x17, x1
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore x29
        .cfi_restore x30
        .cfi_adjust_cfa_offset -32
        cbz     x16, 1f
        br      x16
1:      mov     x0, x17
        ret
        .cfi_endproc
        .size   dlsym, .-dlsym
#endif
        .section .note.GNU-stack, "", %progbits
