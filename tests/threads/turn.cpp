#include "turn.h"

namespace {

constexpr size_t edge = 4096; // what is looked at, at both ends

// Written out, so that no compiler for the GPU is needed; the driver translates it.
constexpr const char source[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry turn(.param .u64 head, .param .u64 tail, .param .u32 words,
                     .param .u32 expected, .param .u32 next, .param .u64 errors)
{
    .reg .u64 %head, %tail, %errors, %offset, %at;
    .reg .u32 %words, %expected, %next, %i, %step, %found;
    .reg .pred %end, %wrong, %no_tail, %is_new;
    ld.param.u64 %head, [head];
    ld.param.u64 %tail, [tail];
    ld.param.u32 %words, [words];
    ld.param.u32 %expected, [expected];
    ld.param.u32 %next, [next];
    ld.param.u64 %errors, [errors];
    setp.eq.u64 %no_tail, %tail, 0;
    setp.eq.u32 %is_new, %expected, 0;
    mov.u32 %i, %tid.x;
    mov.u32 %step, %ntid.x;
again:
    setp.ge.u32 %end, %i, %words;
    @%end bra done;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %at, %head, %offset;
    ld.global.u32 %found, [%at];
    st.global.u32 [%at], %next;
    setp.ne.u32 %wrong, %found, %expected;
    @%is_new bra behind;
    @%wrong red.global.add.u32 [%errors], 1;
behind:
    @%no_tail bra more;
    add.u64 %at, %tail, %offset;
    ld.global.u32 %found, [%at];
    st.global.u32 [%at], %next;
    setp.ne.u32 %wrong, %found, %expected;
    @%is_new bra more;
    @%wrong red.global.add.u32 [%errors], 1;
more:
    add.u32 %i, %i, %step;
    bra again;
done:
    ret;
}
)";

} // namespace

Turn::Turn(const Cuda &cuda, emm_context *context) : cuda_(cuda), context_(context) {
    check(emm_memalloc(context_, sizeof(unsigned), nullptr, &errors_), "emm_memalloc");
    check(cuda_.cuMemsetD32Async(errors_, 0, 1, nullptr), "cuMemsetD32Async");
    check(cuda_.cuCtxSynchronize(), "cuCtxSynchronize");
    if (!cuda_.cuModuleLoadData) {
        return;
    }
    CUmodule module = nullptr;
    check(cuda_.cuModuleLoadData(&module, source), "cuModuleLoadData");
    check(cuda_.cuModuleGetFunction(&kernel_, module, "turn"), "cuModuleGetFunction");
    launch_ = cuda_.cuLaunchKernel;
}

Turn::~Turn() {
    emm_memfree(context_, errors_, 0, EMM_STREAM_UNORDERED);
}

void Turn::take(emm_deviceptr ptr, size_t size, unsigned expected, unsigned next,
                CUstream stream) const {
    const bool both = size >= 2 * edge;
    unsigned words = unsigned((size < edge ? size : edge) / 4);
    emm_deviceptr head = ptr, tail = both ? ptr + size / 4 * 4 - edge : 0, errors = errors_;
    if (kernel_) {
        void *arguments[] = {&head, &tail, &words, &expected, &next, &errors};
        check(launch_(kernel_, 1, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr),
              "cuLaunchKernel");
        return;
    }
    check(cuda_.cuMemsetD32Async(head, next, words, stream), "cuMemsetD32Async");
    if (both) {
        check(cuda_.cuMemsetD32Async(tail, next, words, stream), "cuMemsetD32Async");
    }
}

unsigned Turn::errors() const {
    unsigned count = 0;
    check(cuda_.cuMemcpyDtoHAsync(&count, errors_, sizeof count, nullptr), "cuMemcpyDtoHAsync");
    check(cuda_.cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    return count;
}
