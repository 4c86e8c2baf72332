#include "api/check.h"
#include "core/lifecycle/lifecycle.h"
#include "loader/search.h"
#include "observe/text.h"

using namespace emm;

namespace {

// The walk itself is not counted: it holds no lock, and `visit` may fork for each plugin.
const loader::Search &counted_search() {
    const observe::ProcessCall call;
    return loader::process_search();
}

} // namespace

emm_status emm_set_plugin(const char *spec) {
    EMM_COUNT_CALL();
    EMM_REQUIRE(spec);
    EMM_TRY(core::admit_process());
    return api::guarded([&] { return core::choose(spec); });
}

emm_status emm_set_plugin_entry(emm_plugin_entry entry, const char *options) {
    EMM_COUNT_CALL();
    EMM_REQUIRE(entry);
    EMM_TRY(core::admit_process());
    return api::guarded([&] { return core::choose_entry(entry, options); });
}

emm_status emm_get_plugin(emm_plugin_info *ret_info) {
    EMM_COUNT_CALL();
    EMM_REQUIRE_SIZED(ret_info);
    EMM_TRY(core::admit_process());
    return api::guarded([&]() -> emm_status {
        const loader::Selection *selection = nullptr;
        EMM_TRY(core::current_selection(selection));
        core::describe_selection(*selection, ret_info);
        return EMM_OK;
    });
}

emm_status emm_probe_plugin(const char *spec, emm_plugin_info *ret_info) {
    EMM_COUNT_CALL();
    EMM_REQUIRE(spec);
    EMM_REQUIRE_SIZED(ret_info);
    EMM_TRY(core::admit_process());
    return api::guarded([&]() -> emm_status {
        const loader::Selection *selection = nullptr;
        EMM_TRY(core::probe(spec, selection));
        core::describe_selection(*selection, ret_info);
        return EMM_OK;
    });
}

emm_status emm_get_device_total(int32_t device, size_t *ret_total) {
    EMM_ENTER(ret_total);
    EMM_TRY(core::admit_process());
    return api::guarded([&] { return core::device_total(device, ret_total); });
}

emm_status emm_foreach_plugin(emm_plugin_visitor visit, void *user_data) {
    EMM_ENTER(visit);
    return api::guarded([&]() -> emm_status {
        loader::for_each_candidate(
            counted_search(), [&](const std::string &name, const std::string &path) {
                return visit(observe::one_line(name).c_str(), observe::one_line(path).c_str(),
                             user_data) == 0;
            });
        return EMM_OK;
    });
}
