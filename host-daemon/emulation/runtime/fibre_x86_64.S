// The fibre switch for x86-64, System V ABI: saves rbx, rbp, r12-r15 and the return address on the old stack.
        .text
        .globl  smolvm_fibre_switch
        .hidden smolvm_fibre_switch
        .type   smolvm_fibre_switch, @function
        .p2align 4
smolvm_fibre_switch:
        pushq   %rbp
        pushq   %rbx
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        movq    %rsp, (%rdi)
        movq    %rsi, %rsp
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbx
        popq    %rbp
        ret
        .size   smolvm_fibre_switch, .-smolvm_fibre_switch

        .globl  smolvm_fibre_jump
        .hidden smolvm_fibre_jump
        .type   smolvm_fibre_jump, @function
        .p2align 4
smolvm_fibre_jump:
        movq    %rdi, %rsp
// A signal handler arrives here with rsp already set.
        .globl  smolvm_fibre_resume
        .hidden smolvm_fibre_resume
smolvm_fibre_resume:
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbx
        popq    %rbp
        ret
        .size   smolvm_fibre_jump, .-smolvm_fibre_jump

// First code of a fibre: MakeFibre put the entry in r12 and its argument in rbx.
        .globl  smolvm_fibre_start
        .hidden smolvm_fibre_start
        .type   smolvm_fibre_start, @function
        .p2align 4
smolvm_fibre_start:
        movq    %rbx, %rdi
        xorl    %ebp, %ebp
        callq   *%r12
        ud2
        .size   smolvm_fibre_start, .-smolvm_fibre_start

        .section .note.GNU-stack,"",@progbits
