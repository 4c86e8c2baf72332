#include "api/check.h"
#include "observe/callers/tags.h"

#include <emm/emm.h>

using namespace emm;

emm_status emm_tag_begin(const char *name) {
    EMM_ENTER(name);
    if (observe::begin_latest_tag(name)) {
        return EMM_OK;
    }
    const core::Uncancelled uncancelled;
    if (*name == '\0') {
        return observe::refuse("emm_tag_begin: name: expected one of 1 to 64 bytes, found none");
    }
    EMM_COUNT_CALL();
    observe::begin_tag(name);
    return EMM_OK;
}

emm_status emm_tag_end(void) {
    EMM_REFUSE_CHILD();
    return observe::end_tag() ? EMM_OK
                              : observe::refuse("emm_tag_end: no tag has begun on this thread");
}
