/* A library with a name of the CUDA runtime: the callers of this library count as the callers of
   emm. */
#include <emm/emm.h>

typedef emm_status (*Allocate)(emm_context *, size_t, emm_stream, emm_deviceptr *);

static volatile int level;

static __attribute__((noinline)) emm_status inside(Allocate allocate, emm_context *context,
                                                   size_t size, emm_deviceptr *ret_ptr) {
    const emm_status status = allocate(context, size, EMM_STREAM_LEGACY, ret_ptr);
    level--;
    return status;
}

__attribute__((visibility("default"))) emm_status
stand_in_malloc(Allocate allocate, emm_context *context, size_t size, emm_deviceptr *ret_ptr) {
    level++;
    const emm_status status = inside(allocate, context, size, ret_ptr);
    level--;
    return status;
}
