/*
 * An exported function for each entry of the library (EMM_RUN_ENTRIES lists them), which jumps to
 * where emm_run_targets says. At first that is a few instructions that have every target filled in
 * (emm_run_bind, in binding.cpp), with all arguments as the caller has passed them. Of the
 * processor's own, these have
 *
 *     FIRST(name, index)    .Lfirst_NAME: puts the index where .Lbind expects it, and goes there
 *     JUMP(index)           jumps to where the target with that index says
 */
#if defined(__x86_64__)
#include "trampolines_x86_64.inc"
#elif defined(__aarch64__)
#include "trampolines_aarch64.inc"
#else
#error "trampolines are written for x86-64 and aarch64"
#endif

/* The first target of each entry. */
#define ENTRY(name, index) FIRST(name, index)
#define ENTRY_COUNT(count)
    .text
#include EMM_RUN_ENTRIES
#undef ENTRY

/* The entries. */
#define ENTRY(name, index)                                                                         \
    .globl name; .type name, %function; .p2align 4; name: .Lentry_##name: .cfi_startproc;          \
    JUMP(index); .cfi_endproc; .size name, . - name;
#include EMM_RUN_ENTRIES
#undef ENTRY

/* Where they jump to. */
    .section .data.rel.local, "aw", %progbits
    .globl emm_run_targets
    .hidden emm_run_targets
    .type emm_run_targets, %object
    .p2align 6
emm_run_targets:
#define ENTRY(name, index) .quad .Lfirst_##name;
#include EMM_RUN_ENTRIES
#undef ENTRY
    .size emm_run_targets, . - emm_run_targets

/* Their own addresses, whatever else in the process has such a name. */
    .globl emm_run_entries
    .hidden emm_run_entries
    .type emm_run_entries, %object
emm_run_entries:
#define ENTRY(name, index) .quad .Lentry_##name;
#include EMM_RUN_ENTRIES
    .size emm_run_entries, . - emm_run_entries

    .section .note.GNU-stack, "", %progbits
