#include "observe/error.h"

const emm_error *emm_last_error(void) {
    return emm::observe::last_error();
}

const char *emm_version(void) {
    return EMM_VERSION;
}
