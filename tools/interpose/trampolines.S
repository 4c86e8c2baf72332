/*
 * An exported function for each entry of the library (EMM_RUN_ENTRIES lists them), which jumps to
 * where emm_run_targets says. At first that is a few instructions that have every target filled in
 * (emm_run_bind, in interposer.cpp), with all arguments as the caller has passed them.
 */
#if !defined(__x86_64__)
#error "trampolines are written for x86-64"
#endif

/* What each entry jumps to at first: its number, and on to `bind`. */
#define ENTRY(name, index)                                                                         \
    .Lfirst_##name: movl $index, %r11d; jmp .Lbind;
#define ENTRY_COUNT(count)
    .text
#include EMM_RUN_ENTRIES
#undef ENTRY
#undef ENTRY_COUNT

.Lbind:
    .cfi_startproc
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    andq $-16, %rsp
    subq $192, %rsp
    movq %rdi, 0(%rsp)
    movq %rsi, 8(%rsp)
    movq %rdx, 16(%rsp)
    movq %rcx, 24(%rsp)
    movq %r8, 32(%rsp)
    movq %r9, 40(%rsp)
    movq %rax, 48(%rsp)
    movups %xmm0, 64(%rsp)
    movups %xmm1, 80(%rsp)
    movups %xmm2, 96(%rsp)
    movups %xmm3, 112(%rsp)
    movups %xmm4, 128(%rsp)
    movups %xmm5, 144(%rsp)
    movups %xmm6, 160(%rsp)
    movups %xmm7, 176(%rsp)
    movl %r11d, %edi
    call emm_run_bind
    movq %rax, %r11
    movq 0(%rsp), %rdi
    movq 8(%rsp), %rsi
    movq 16(%rsp), %rdx
    movq 24(%rsp), %rcx
    movq 32(%rsp), %r8
    movq 40(%rsp), %r9
    movq 48(%rsp), %rax
    movups 64(%rsp), %xmm0
    movups 80(%rsp), %xmm1
    movups 96(%rsp), %xmm2
    movups 112(%rsp), %xmm3
    movups 128(%rsp), %xmm4
    movups 144(%rsp), %xmm5
    movups 160(%rsp), %xmm6
    movups 176(%rsp), %xmm7
    leave
    .cfi_def_cfa %rsp, 8
    jmp *%r11
    .cfi_endproc

/* The entries. */
#define ENTRY(name, index)                                                                         \
    .globl name; .type name, @function; .p2align 4; name: .Lentry_##name: .cfi_startproc; endbr64;                 \
    jmp *(emm_run_targets + 8 * index)(%rip); .cfi_endproc; .size name, . - name;
#define ENTRY_COUNT(count)
#include EMM_RUN_ENTRIES
#undef ENTRY
#undef ENTRY_COUNT

/* Where they jump to. */
    .section .data.rel.local, "aw", @progbits
    .globl emm_run_targets
    .hidden emm_run_targets
    .type emm_run_targets, @object
    .p2align 6
emm_run_targets:
#define ENTRY(name, index) .quad .Lfirst_##name;
#define ENTRY_COUNT(count)
#include EMM_RUN_ENTRIES
#undef ENTRY
    .size emm_run_targets, . - emm_run_targets

/* Their own addresses, whatever else in the process has such a name. */
    .globl emm_run_entries
    .hidden emm_run_entries
    .type emm_run_entries, @object
emm_run_entries:
#define ENTRY(name, index) .quad .Lentry_##name;
#include EMM_RUN_ENTRIES
    .size emm_run_entries, . - emm_run_entries

    .section .note.GNU-stack, "", @progbits
