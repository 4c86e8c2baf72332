#include "starts.h"

#include "importer.h"

#include <cstdlib>
#include <filesystem>

namespace faults {
namespace {

Importer *importer = nullptr; // to the end of the process

bool has_primary_context() {
    const auto state = CU(cuDevicePrimaryCtxGetState);
    unsigned flags = 0;
    int active = 0;
    return state && state(0, &flags, &active) == CUDA_SUCCESS && active;
}

bool find_context(Run &run) {
    emm_context *context = nullptr;
    const bool found =
        run.call("context_for_device", [&] { return emm_context_for_device(0, &context); });
    if (!found) {
        run.left_alone<emm_context *>("context_for_device", context, nullptr);
        if (run.status() == EMM_E_OUT_OF_HOST_MEMORY && has_primary_context()) {
            run.complain("for want of host memory no context is served, and one is retained");
        }
    }
    run.set_context(context);
    return found;
}

} // namespace

const std::string &own_folder() {
    static const std::string made = [] {
        std::string name = std::filesystem::temp_directory_path() / "emm-faults-XXXXXX";
        must(mkdtemp(name.data()), "a folder");
        return name;
    }();
    return made;
}

void remove_own_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(own_folder(), ignored);
}

void load(Run &run) {
    auto driver = sized<emm_driver_info>();
    auto plugin = sized<emm_plugin_info>();
    run.call("get_driver", [&] { return emm_get_driver(&driver); });
    run.call("get_plugin", [&] { return emm_get_plugin(&plugin); });
    find_context(run);
    run.alloc(5000, EMM_STREAM_LEGACY);
    run.hostalloc(5000, EMM_HOST_MAPPED);
    run.free_all();
}

// A log that cannot be written is no failure of a call.
void logged(Run &run) {
    find_context(run);
    run.call("tag_begin", [] { return emm_tag_begin("a tag"); });
    for (const size_t size : {5 * kib, 3 * mib}) {
        run.alloc(size, EMM_STREAM_LEGACY);
    }
    run.call("log", [] { return emm_log(EMM_LOG_WARN, "a line of the program's"); });
    run.free_all();
    run.call("tag_end", [] { return emm_tag_end(); });
    run.call("shutdown", [] { return emm_shutdown(); });
}

void limited(Run &run) {
    auto account = sized<emm_device_account>();
    find_context(run);
    run.alloc(3 * mib, EMM_STREAM_LEGACY);
    if (run.call("get_device_account", [&] { return emm_get_device_account(0, &account); }) &&
        account.limit_bytes != 64 * mib) {
        run.complain("the bound is " + std::to_string(account.limit_bytes));
    }
    emm_deviceptr beyond = 0;
    run.call("memalloc of more than there is", [&] {
        const emm_status status = emm_memalloc(run.context(), 80 * mib, EMM_STREAM_LEGACY, &beyond);
        return status == EMM_E_OUT_OF_MEMORY ? EMM_OK : status;
    });
    const bool is_bounded = account.managers[EMM_MEMORY_MANAGED].made == 0; // managed memory is not
    if (beyond != 0 && is_bounded) {
        run.complain("memory beyond the bound is given out");
    }
    run.free_all();
}

void reported(Run &run) {
    find_context(run);
    run.call("tag_begin", [] { return emm_tag_begin("a tag"); });
    run.alloc(3 * mib, EMM_STREAM_LEGACY);
    run.alloc(5 * kib, EMM_STREAM_LEGACY);
    emm_deviceptr beyond = 0;
    run.call("memalloc of more than there is", [&] {
        const emm_status status =
            emm_memalloc(run.context(), size_t(1) << 50, EMM_STREAM_LEGACY, &beyond);
        return status == EMM_E_OUT_OF_MEMORY ? EMM_OK : status;
    });
    size_t count = 0;
    const auto counting = [](const emm_allocation *, void *to) {
        ++*static_cast<size_t *>(to);
        return 0;
    };
    if (run.call("foreach_allocation",
                 [&] { return emm_foreach_allocation(run.context(), counting, &count); }) &&
        count > 2) {
        run.complain(std::to_string(count) + " allocations of two are told of");
    }
    run.free_all();
    run.call("tag_end", [] { return emm_tag_end(); });
}

void plugins(Run &run) {
    const auto seen = [](const char *, const char *, void *) { return 0; };
    auto plugin = sized<emm_plugin_info>();
    run.call("foreach_plugin", [&] { return emm_foreach_plugin(seen, nullptr); });
    run.call("probe_plugin", [&] { return emm_probe_plugin("count+passthrough", &plugin); });
    run.call("set_plugin", [] {
        const emm_status status = emm_set_plugin("count+passthrough");
        return status == EMM_E_BUSY ? EMM_OK : status; // the second time
    });
    find_context(run);
    run.alloc(5000, EMM_STREAM_LEGACY);
    run.free_all();
}

void start_importer() {
    importer = new Importer;
}

// The importer may be refused while calls of this process fail. If all fail, it would wait without
// end.
void serve(Run &run) {
    find_context(run);
    emm_memory *const memory = run.handle("memory_alloc", [&](emm_memory **made) {
        return emm_memory_alloc(run.context(), 5 * mib, EMM_STREAM_LEGACY, made);
    });
    emm_ipc_handle handle = {};
    if (run.call("memory_export", [&] { return emm_memory_export(memory, &handle); })) {
        emm_context *const of = run.context();
        run.undo_later("release_ipc_handle", [=] { return emm_release_ipc_handle(of, &handle); });
        const std::string problem = all_fail_from_now() ? "" : importer->open(handle);
        if (!problem.empty() && (problem == Importer::silent || !has_failed())) {
            run.complain("an import by another process: " + problem);
        }
    }
    run.free_all();
}

} // namespace faults
