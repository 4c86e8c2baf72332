#include "observe/log.h"
#include "api/check.h"

using namespace emm;

namespace {

// EMM_OK for a level from `first` to EMM_LOG_DEBUG.
emm_status check_level(const char *function, int32_t level, int32_t first) {
    if (level >= first && level <= EMM_LOG_DEBUG) {
        return EMM_OK;
    }
    return observe::refuse("{}: level: expected {} ({}) to EMM_LOG_DEBUG ({}), found {}", function,
                           first == EMM_LOG_OFF ? "EMM_LOG_OFF" : "EMM_LOG_ERROR", first,
                           EMM_LOG_DEBUG, level);
}

emm_status exchange_callback(const char *function, const emm_log_callback_info &next,
                             emm_log_callback_info *ret_previous) {
    EMM_COUNT_CALL();
    EMM_TRY(check_level(function, next.level, EMM_LOG_OFF));
    return api::guarded([&] { return observe::set_log_callback(next, ret_previous); });
}

emm_status exchange_level(const char *function, int32_t level, int32_t *ret_previous) {
    EMM_COUNT_CALL();
    EMM_TRY(check_level(function, level, EMM_LOG_OFF));
    return api::guarded([&] { return observe::set_log_level(level, ret_previous); });
}

} // namespace

emm_status emm_set_log_callback(int32_t level, emm_log_callback callback, void *user_data) {
    return exchange_callback(__func__, {callback, user_data, level, 0}, nullptr);
}

emm_status emm_exchange_log_callback(int32_t level, emm_log_callback callback, void *user_data,
                                     emm_log_callback_info *ret_previous) {
    return exchange_callback(__func__, {callback, user_data, level, 0}, ret_previous);
}

emm_status emm_set_log_level(int32_t level) {
    return exchange_level(__func__, level, nullptr);
}

emm_status emm_exchange_log_level(int32_t level, int32_t *ret_previous) {
    return exchange_level(__func__, level, ret_previous);
}

emm_status emm_log(int32_t level, const char *text) {
    EMM_COUNT_CALL();
    EMM_REQUIRE(text);
    EMM_TRY(check_level(__func__, level, EMM_LOG_ERROR));
    observe::log(level, std::string_view(text));
    return EMM_OK;
}
