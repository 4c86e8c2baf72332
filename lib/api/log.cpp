#include "observe/log.h"
#include "api/check.h"

using namespace emm;

namespace {

bool is_level(int32_t level) {
    return level >= EMM_LOG_OFF && level <= EMM_LOG_DEBUG;
}

emm_status refuse_level(const char *function, int32_t level) {
    return observe::refuse("{}: level: expected EMM_LOG_OFF (0) to EMM_LOG_DEBUG (4), found {}",
                           function, level);
}

} // namespace

emm_status emm_set_log_callback(int32_t level, emm_log_callback callback, void *user_data) {
    EMM_COUNT_CALL();
    return is_level(level)
               ? api::guarded([&] { return observe::set_log_callback(level, callback, user_data); })
               : refuse_level(__func__, level);
}

emm_status emm_set_log_level(int32_t level) {
    EMM_COUNT_CALL();
    return is_level(level) ? api::guarded([&] { return observe::set_log_level(level); })
                           : refuse_level(__func__, level);
}
