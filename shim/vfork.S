// vfork, as a jump: a C function around it would return twice over one stack frame. What the child would inherit is made
// real first, and the thread is marked (process.h); then libc's vfork runs as if called directly.
#if defined(__x86_64__)
        .text
        .globl  vfork
        .type   vfork, @function
vfork:
        .cfi_startproc
        endbr64
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    cube_shim_before_vfork
        movq    cube_shim_real_vfork(%rip), %rax
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   vfork, .-vfork
        .globl  __vfork
        .set    __vfork, vfork
#elif defined(__aarch64__)
        .text
        .globl  vfork
        .type   vfork, %function
vfork:
        .cfi_startproc
        hint    #34                       // bti c
        stp     x29, x30, [sp, #-16]!
        .cfi_adjust_cfa_offset 16
        .cfi_offset x29, -16
        .cfi_offset x30, -8
        mov     x29, sp
        bl      cube_shim_before_vfork
        ldp     x29, x30, [sp], #16
        .cfi_restore x29
        .cfi_restore x30
        .cfi_adjust_cfa_offset -16
        adrp    x16, cube_shim_real_vfork
        ldr     x16, [x16, #:lo12:cube_shim_real_vfork]
        br      x16
        .cfi_endproc
        .size   vfork, .-vfork
        .globl  __vfork
        .set    __vfork, vfork
#endif
        .section .note.GNU-stack, "", %progbits
