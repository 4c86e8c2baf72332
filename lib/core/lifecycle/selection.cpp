#include "core/lifecycle/lifecycle.h"

#include "core/memory/call.h"
#include "core/memory/default_memory.h"
#include "core/record/deferred.h"
#include "core/record/owner_lock.h"
#include "driver/driver.h"
#include "fence/asymmetric_fence.h"
#include "loader/loader.h"
#include "loader/spec.h"
#include "observe/environment.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/process.h"
#include "observe/running.h"

#include <algorithm>
#include <atomic>
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <mutex>
#include <sys/stat.h>
#include <utility>
#include <vector>

namespace emm::core {
namespace {

// A choice of plugins: the specs in order, and the position in them. The texts never change. The
// choice_lock guards the other members while plugins are being called.
struct Choice {
    std::vector<loader::Spec> specs; // empty: linked in, and loaded already
    std::string selected_by;
    size_t next = 0; // the first spec that has not been tried
    const loader::Selection *reached = nullptr;
    std::vector<const loader::Selection *> passed_over; // plugins may keep pointers to their texts
    std::vector<std::string> refusals;                  // of the specs before `next`
    size_t warned = 0;                                  // so many refusals are in the log already
};

constexpr auto &choice_lock = observe::immortal<OwnerLock>;

Choice *the_choice = nullptr; // guarded by the choice_lock
// Set once, by the first manager that was made; the choice is fixed from then on.
std::atomic<const loader::Selection *> serving_selection{nullptr};

constexpr const char *reentered = "the plugin called emm from its entry point or from create";

emm_status busy() {
    return observe::fail(EMM_E_BUSY, 0,
                         "too late to change the plugin: {} serves a context already",
                         serving_selection.load()->plugin->name);
}

// EMM_PLUGIN as it was when emm first asked. A later change of the variable chooses nothing, and
// does not override a choice from code.
const std::string &specs_at_start() {
    static const auto *const specs = new std::string(observe::environment("EMM_PLUGIN"));
    const std::string_view now = observe::environment("EMM_PLUGIN");
    static std::atomic<bool> warned{false};
    if (now != *specs && !warned.exchange(true)) {
        observe::log(EMM_LOG_WARN,
                     "EMM_PLUGIN was set to '{}' too late: emm had read it before, when it was {}",
                     now, specs->empty() ? "not set" : "'" + *specs + "'");
    }
    return *specs;
}

bool environment_outranks(const char *what) {
    const std::string &specs = specs_at_start();
    if (specs.empty()) {
        return false;
    }
    observe::log(EMM_LOG_WARN, "{} is ignored: EMM_PLUGIN is set to '{}'", what, specs);
    return true;
}

// The choice in force if the program has not chosen from code.
emm_status initial_choice(Choice *&ret_choice) {
    auto choice = std::make_unique<Choice>();
    const std::string &specs = specs_at_start();
    choice->selected_by = specs.empty() ? "default" : "EMM_PLUGIN";
    EMM_TRY(loader::parse_specs(specs.empty() ? "passthrough" : specs, choice->specs));
    ret_choice = choice.release();
    return EMM_OK;
}

// The log names each refused plugin before the next in the list is taken.
void warn_of_refusals(Choice &choice) {
    for (; choice.warned < choice.refusals.size(); ++choice.warned) {
        observe::log(EMM_LOG_WARN, choice.refusals[choice.warned]);
    }
}

// Loads specs from choice.next on until one loads.
emm_status advance(Choice &choice) {
    emm_status status = EMM_E_PLUGIN_NOT_FOUND;
    if (choice.reached) {
        choice.passed_over.push_back(std::exchange(choice.reached, nullptr));
    }
    while (choice.next < choice.specs.size()) {
        auto selection = std::make_unique<loader::Selection>();
        status = loader::load(choice.specs[choice.next++], choice.selected_by, host(),
                              default_slots(), *selection);
        if (status == EMM_OK) {
            choice.reached = selection.release();
            warn_of_refusals(choice);
            return EMM_OK;
        }
        choice.refusals.push_back(observe::last_error()->text);
    }
    return status;
}

// Describes the failure of the whole list: every refusal, in order.
emm_status fail_of_all_plugins(const Choice &choice, emm_status status) {
    if (choice.refusals.size() < 2) {
        return status;
    }
    observe::ErrorDetail detail = observe::last_detail();
    detail.code = status;
    detail.text = fmt::format("none of the {} plugins in {} can serve; {}", choice.refusals.size(),
                              choice.selected_by, fmt::join(choice.refusals, "; "));
    return observe::fail(std::move(detail));
}

// A folder has two links, and one more for each folder inside. In /proc/self/task each thread is a
// folder.
bool has_one_thread() {
    struct stat tasks = {};
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3;
}

// Registers the fence once, so that the registrations by epochs, event logs and the pool return at
// once. While the process has one thread, this takes a microsecond: so it is when most programs
// first call emm. Once CUDA's threads run, it takes 10 to 25 ms, and then only users of fences pay
// for it.
void register_fences_early() {
    if (has_one_thread()) {
        register_asymmetric_fence();
    }
}

emm_status reach(Choice *&ret_choice) {
    register_fences_early();
    specs_at_start(); // warns if the variable has changed
    if (!the_choice) {
        EMM_TRY(initial_choice(the_choice));
    }
    ret_choice = the_choice;
    if (ret_choice->reached) {
        return EMM_OK;
    }
    // Every call starts from the first spec, because a missing plugin may be there now.
    ret_choice->next = 0;
    ret_choice->refusals.clear();
    ret_choice->warned = 0;
    const emm_status status = advance(*ret_choice);
    return status == EMM_OK ? EMM_OK : fail_of_all_plugins(*ret_choice, status);
}

emm_status replace_choice(std::unique_ptr<Choice> choice) {
    if (serving_selection.load()) {
        return busy();
    }
    const emm_status status = choice->specs.empty() ? EMM_OK : advance(*choice);
    if (status != EMM_OK) {
        return fail_of_all_plugins(*choice, status);
    }
    if (the_choice) { // plugins may keep pointers to its texts as well
        choice->passed_over.insert(choice->passed_over.end(), the_choice->passed_over.begin(),
                                   the_choice->passed_over.end());
        if (the_choice->reached) {
            choice->passed_over.push_back(the_choice->reached);
        }
        delete the_choice;
    }
    the_choice = choice.release();
    return EMM_OK;
}

} // namespace

emm_status choose(const char *spec) {
    if (environment_outranks("emm_set_plugin")) {
        return EMM_S_IGNORED;
    }
    auto choice = std::make_unique<Choice>();
    choice->selected_by = "emm_set_plugin";
    EMM_TRY(loader::parse_specs(spec, choice->specs));
    const OwnerGuard guard(choice_lock());
    EMM_TRY(guard.expect_owned(reentered));
    return replace_choice(std::move(choice));
}

emm_status choose_entry(emm_plugin_entry entry, const char *options) {
    if (environment_outranks("emm_set_plugin_entry")) {
        return EMM_S_IGNORED;
    }
    std::vector<loader::Setting> settings;
    EMM_TRY(loader::parse_settings(options ? options : "", settings));
    const OwnerGuard guard(choice_lock());
    EMM_TRY(guard.expect_owned(reentered));
    if (serving_selection.load()) {
        return busy();
    }
    auto selection = std::make_unique<loader::Selection>();
    EMM_TRY(loader::load_entry(entry, settings, "emm_set_plugin_entry", host(), default_slots(),
                               *selection));
    auto choice = std::make_unique<Choice>();
    choice->selected_by = selection->selected_by;
    choice->reached = selection.release();
    return replace_choice(std::move(choice));
}

emm_status current_selection(const loader::Selection *&ret_selection) {
    if (const loader::Selection *selection = serving_selection.load(std::memory_order_acquire)) {
        ret_selection = selection;
        return EMM_OK;
    }
    observe::check_settings(); // warns now, not at the first use of a setting
    const OwnerGuard guard(choice_lock());
    EMM_TRY(guard.expect_owned(reentered));
    Choice *choice = nullptr;
    EMM_TRY(reach(choice));
    ret_selection = choice->reached;
    return EMM_OK;
}

emm_status probe(const char *spec, const loader::Selection *&ret_selection) {
    observe::check_settings();
    std::vector<loader::Spec> specs;
    EMM_TRY(loader::parse_specs(spec, specs));
    const OwnerGuard guard(choice_lock());
    EMM_TRY(guard.expect_owned(reentered));
    auto selection = std::make_unique<loader::Selection>();
    specs.front().is_described = true;
    EMM_TRY(loader::load(specs.front(), "emm_probe_plugin", host(), default_slots(), *selection));
    // The caller keeps pointers into each selection, so all of them live as long as the process.
    static auto *const told = new std::vector<std::unique_ptr<loader::Selection>>;
    told->push_back(std::move(selection));
    ret_selection = told->back().get();
    return EMM_OK;
}

namespace {

emm_plugin_info describe(const loader::Plugin &plugin,
                         const std::vector<const char *> &option_texts) {
    auto info = observe::sized<emm_plugin_info>();
    info.abi_major = plugin.abi_major;
    info.abi_minor = plugin.abi_minor;
    info.name = plugin.name.c_str();
    info.version = plugin.version.c_str();
    info.description = plugin.description.c_str();
    info.path = plugin.path.empty() ? nullptr : plugin.path.c_str();
    info.build_id = plugin.build_id.empty() ? nullptr : plugin.build_id.c_str();
    info.capabilities = plugin.table.capabilities;
    info.options = plugin.options.data();
    info.option_texts = option_texts.data();
    return info;
}

constexpr const emm_plugin_info *no_layer = nullptr;

// The storage behind emm_plugin_info: made once for each selection, and as long-lived.
class DescribedLayers {
public:
    explicit DescribedLayers(const loader::Selection &selection) {
        for (size_t i = selection.layers.size(); i-- > 0;) {
            const loader::SelectedLayer &layer = selection.layers[i];
            infos_.push_back(describe(*selection.plugin->members[i + 1], layer.option_texts));
            infos_.back().spec = layer.spec.c_str();
            infos_.back().selected_by = selection.selected_by.c_str();
            infos_.back().layers = &no_layer;
        }
        for (const emm_plugin_info &info : infos_) {
            list_.push_back(&info);
        }
        list_.push_back(nullptr);
    }
    const emm_plugin_info *const *list() const { return list_.data(); }

private:
    std::vector<emm_plugin_info> infos_;
    std::vector<const emm_plugin_info *> list_;
};

const emm_plugin_info *const *layers_of(const loader::Selection &selection) {
    if (selection.layers.empty()) {
        return &no_layer;
    }
    static std::mutex mutex;
    static auto *const described = new std::map<const loader::Selection *, DescribedLayers>;
    const std::lock_guard lock(mutex);
    return described->try_emplace(&selection, selection).first->second.list();
}

} // namespace

void describe_selection(const loader::Selection &selection, emm_plugin_info *ret_info) {
    emm_plugin_info info = describe(selection.plugin->bottom(), selection.option_texts);
    info.capabilities = selection.plugin->table.capabilities;
    info.spec = selection.spec.c_str();
    info.selected_by = selection.selected_by.c_str();
    info.layers = layers_of(selection);
    emm_copy_sized(ret_info, &info);
}

emm_status select_options(const loader::Selection &base, const char *options,
                          const loader::Selection *&ret_selection) {
    // Pools keep their selections, so all of them live as long as the process.
    static auto *const made = new std::vector<std::unique_ptr<loader::Selection>>;
    std::vector<loader::Setting> settings;
    EMM_TRY(loader::parse_settings(options, settings));
    const OwnerGuard guard(choice_lock());
    EMM_TRY(guard.expect_owned(reentered));
    auto selection = std::make_unique<loader::Selection>();
    EMM_TRY(loader::derive(base, settings, *selection));
    selection->selected_by = "emm_context_named";
    const auto is_same = [&](const loader::Selection &other) {
        return loader::find_difference(*selection, other) == nullptr;
    };
    const auto found = std::find_if(made->begin(), made->end(),
                                    [&](const auto &other) { return is_same(*other); });
    if (is_same(base) || found != made->end()) {
        ret_selection = is_same(base) ? &base : found->get();
        return EMM_OK;
    }
    EMM_TRY(loader::check_selection(host(), *selection));
    made->push_back(std::move(selection));
    ret_selection = made->back().get();
    return EMM_OK;
}

emm_status make_manager(emm_context &context) {
    if (context.is_named()) {
        return create_manager(context, *context.selection);
    }
    if (const loader::Selection *selection = serving_selection.load(std::memory_order_acquire)) {
        return create_manager(context, *selection);
    }
    observe::check_settings();
    const OwnerGuard guard(choice_lock());
    EMM_TRY(guard.expect_owned(reentered));
    if (const loader::Selection *selection = serving_selection.load(std::memory_order_acquire)) {
        return create_manager(context, *selection);
    }
    Choice *choice = nullptr;
    emm_status status = reach(choice);
    while (status == EMM_OK) {
        status = create_manager(context, *choice->reached);
        if (status == EMM_OK) {
            serving_selection.store(choice->reached, std::memory_order_release);
            return EMM_OK;
        }
        if (choice->specs.empty()) {
            return status; // linked in: there is no next plugin
        }
        choice->refusals.push_back(observe::last_error()->text);
        const emm_status next = advance(*choice);
        status = choice->reached ? next : fail_of_all_plugins(*choice, status);
    }
    return status;
}

namespace {

constexpr const char slot[] = "get_device_total";

emm_status ask(const loader::Plugin &plugin, const std::vector<const char *> &option_texts,
               int32_t device, size_t device_bytes, size_t &ret_total) noexcept {
    const observe::Running running(plugin.running_text(loader::Slot::get_device_total));
    try {
        return describe_failure(plugin,
                                plugin.table.get_device_total(&host(), device, device_bytes,
                                                              option_texts.data(), &ret_total),
                                slot);
    } catch (...) {
        return fail_of_exception(plugin, slot);
    }
}

// The total that the plugin reports, as the layers change it, the innermost first.
emm_status ask_all(const loader::Selection &selection, int32_t device, size_t device_bytes,
                   size_t &ret_total) noexcept {
    EMM_TRY(
        ask(selection.plugin->bottom(), selection.option_texts, device, device_bytes, ret_total));
    for (size_t i = 0; i < selection.layers.size(); ++i) {
        const loader::Plugin &layer = *selection.plugin->members[i + 1];
        if (!layer.defaults(loader::Slot::get_device_total)) {
            const size_t below = ret_total;
            EMM_TRY(ask(layer, selection.layers[i].option_texts, device, below, ret_total));
        }
    }
    return EMM_OK;
}

} // namespace

emm_status device_total(int32_t device, size_t *ret_total) {
    const driver::Driver *driver = nullptr;
    CUdevice handle = 0;
    const loader::Selection *selection = nullptr;
    EMM_TRY(driver::initialize(driver));
    EMM_TRY(driver::find_device(*driver, device, &handle));
    EMM_TRY(current_selection(selection));
    size_t device_bytes = 0, total = 0;
    EMM_TRY(EMM_DRIVER_CALL(*driver, cuDeviceTotalMem, &device_bytes, handle));
    const emm_status status = ask_all(*selection, device, device_bytes, total);
    EMM_TRY(status);
    if (total == 0 || total > device_bytes) {
        return observe::fail(EMM_E_PLUGIN_FAILED, 0,
                             "plugin {}, {}: expected 1 to {} bytes, found {}",
                             selection->plugin->name, slot, device_bytes, total);
    }
    *ret_total = total;
    return status;
}

} // namespace emm::core
