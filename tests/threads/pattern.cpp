#include "pattern.h"

namespace {

// Written as PTX, so that no compiler for the GPU is needed; the driver translates it.
constexpr const char source[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry use_block(.param .u64 head, .param .u64 tail, .param .u32 words,
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

Pattern::Pattern(const Cuda &cuda, emm_context *context) : cuda_(cuda), context_(context) {
    if (!cuda_.cuModuleLoadData) {
        return;
    }
    check(emm_memalloc(context_, sizeof(unsigned), nullptr, &errors_), "emm_memalloc");
    check(cuda_.cuMemsetD32Async(errors_, 0, 1, nullptr), "cuMemsetD32Async");
    check(cuda_.cuCtxSynchronize(), "cuCtxSynchronize");
    CUmodule module = nullptr;
    check(cuda_.cuModuleLoadData(&module, source), "cuModuleLoadData");
    check(cuda_.cuModuleGetFunction(&kernel_, module, "use_block"), "cuModuleGetFunction");
    launch_ = cuda_.cuLaunchKernel;
}

Pattern::~Pattern() {
    if (errors_) {
        emm_memfree(context_, errors_, 0, EMM_STREAM_UNORDERED);
    }
}

void Pattern::replace(emm_deviceptr ptr, size_t size, unsigned expected, unsigned next,
                      CUstream stream) const {
    Ends ends(ptr, size);
    if (!kernel_) {
        return write_ends(cuda_, ends, next, stream);
    }
    emm_deviceptr errors = errors_;
    void *arguments[] = {&ends.head, &ends.tail, &ends.words, &expected, &next, &errors};
    check(launch_(kernel_, 1, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel");
}

void Pattern::read_back(emm_deviceptr ptr, size_t size, unsigned expected, CUstream stream) const {
    expect_ends(cuda_, Ends(ptr, size), expected, stream);
}

unsigned Pattern::errors() const {
    unsigned count = 0;
    if (kernel_) {
        check(cuda_.cuMemcpyDtoHAsync(&count, errors_, sizeof count, nullptr), "cuMemcpyDtoHAsync");
        check(cuda_.cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    }
    return count;
}
