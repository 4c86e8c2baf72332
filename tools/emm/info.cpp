#include "commands.h"

#include "child.h"
#include "driver.h"
#include "driver/limit.h"
#include "group.h"
#include "loader/text.h"
#include "observe/settings.h"
#include "observe/text.h"
#include "print.h"
#include "problem.h"
#include "progress.h"
#include "spec.h"
#include "table.h"

#include <emm/emm.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

const char *kind_name(uint32_t kind) {
    switch (kind) {
    case EMM_OPTION_TEXT:
        return "text";
    case EMM_OPTION_SIZE:
        return "size";
    case EMM_OPTION_COUNT:
        return "count";
    case EMM_OPTION_NUMBER:
        return "number";
    case EMM_OPTION_FLAG:
        return "flag";
    case EMM_OPTION_CHOICE:
        return "choice";
    case EMM_OPTION_LIBRARY:
        return "library";
    default:
        return "unknown";
    }
}

Json or_null(const char *text) {
    return text ? Json(text) : Json();
}

Json describe_options(const emm_plugin_info &info) {
    Json options = Json::array();
    for (size_t i = 0; info.options && info.options[i].name; i++) {
        const emm_option &option = info.options[i];
        options.push_back({{"name", option.name},
                           {"kind", kind_name(option.kind)},
                           {"default", or_null(option.default_value)},
                           {"value", or_null(info.option_texts ? info.option_texts[i] : nullptr)},
                           {"help", or_null(option.help)},
                           {"changes", (option.reserved & EMM_OPTION_CHANGES) != 0}});
    }
    return options;
}

emm_plugin_info find_plugin(const std::string &spec) {
    auto info = sized<emm_plugin_info>();
    const bool is_in_force = spec.empty() || is_list(spec); // ask_child() has checked it
    require(is_in_force ? emm_get_plugin(&info) : emm_probe_plugin(spec.c_str(), &info), "resolve");
    return info;
}

// The outermost first.
Json describe_layers(const emm_plugin_info &info) {
    Json layers = Json::array();
    for (size_t i = 0; info.layers && info.layers[i]; i++) {
        const emm_plugin_info &layer = *info.layers[i];
        layers.push_back({{"name", layer.name},
                          {"version", or_null(layer.version)},
                          {"description", or_null(layer.description)},
                          {"path", or_null(layer.path)},
                          {"options", describe_options(layer)}});
    }
    return layers;
}

Json describe_plugin(const std::string &spec, const emm_plugin_info &info) {
    return {{"name", info.name},
            {"version", or_null(info.version)},
            {"path", or_null(info.path)},
            {"abi", fmt::format("{}.{}", info.abi_major, info.abi_minor)},
            {"selected_by", spec.empty() ? info.selected_by : "argument"},
            {"options", describe_options(info)},
            {"layers", describe_layers(info)}};
}

// A plugin's, or a layer's, which emm loads over a plugin only.
Json describe_file(const std::string &name, const std::string &path) {
    auto info = sized<emm_plugin_info>();
    if (emm_probe_plugin(loader::encode(path).c_str(), &info) >= EMM_OK) {
        return {{"description", or_null(info.description)}, {"layer", false}};
    }
    require(emm_probe_plugin((loader::encode(name) + "+passthrough").c_str(), &info), "resolve");
    const std::filesystem::path found = info.layers[0]->path;
    const bool is_it = std::filesystem::equivalent(found, path);
    return {{"description", or_null(is_it ? info.layers[0]->description : "")}, {"layer", true}};
}

Json find_plugins() {
    Json found = Json::array();
    const auto note = [](const char *name, const char *path, void *user_data) {
        static_cast<Json *>(user_data)->push_back({{"name", name}, {"path", path}});
        return 0;
    };
    require(emm_foreach_plugin(note, &found), "resolve");
    return found;
}

// Without a GPU the plugin is still described.
Json driver_or_error() {
    try {
        return describe_driver();
    } catch (const Failure &failure) {
        return to_json(failure.problem());
    }
}

Json describe_environment() {
    Json all = Json::object();
    for (const std::string &variable : observe::variables()) {
        all[variable] = or_null(std::getenv(variable.c_str()));
    }
    return all;
}

// The group that EMM_LIMIT_SHARED names; null: no name.
Json describe_group() {
    const char *const name = std::getenv("EMM_LIMIT_SHARED");
    std::string path;
    driver::GroupFile file;
    if (!name || !*name) {
        return Json();
    }
    uint64_t processes = 0;
    Json devices = Json::array();
    if (open_group(name, file, path).empty()) {
        driver::SharedState &state = file.state();
        for (unsigned i = 0; i < slots_in_use(state); i++) {
            processes += state.members[i].ticket.load() != 0;
        }
        for (const driver::SharedDevice &device : state.devices) {
            if (const uint64_t bound = device.key ? bound_in_force(state, device).bytes : 0) {
                devices.push_back({{"uuid", driver::uuid_text_of(device)},
                                   {"limit", bound},
                                   {"taken", units_taken(device) * driver::shared_unit}});
            }
        }
    }
    return {{"name", name},
            {"file", or_null(path.c_str())},
            {"processes", processes},
            {"devices", devices}};
}

// Checks the text, as far as that needs no device.
std::string complaint_about_limit(const std::string &variable, const std::string &value) {
    std::vector<driver::Limit> limits;
    return value.empty()                    ? ""
           : variable == "EMM_LIMIT"        ? driver::parse_limits(value, limits)
           : variable == "EMM_LIMIT_SHARED" ? driver::group_name_problem(value)
                                            : "";
}

// The rest of a failure that begins with "VARIABLE (".
std::string complaint_in(const Json &driver, const std::string &variable) {
    const std::string text =
        driver.contains("error") ? problem_from_json(driver).message : std::string();
    const size_t end = text.find("): ");
    return text.rfind(variable + " (", 0) == 0 && end != text.npos ? text.substr(end + 3) : "";
}

// The values that hold in place of variables with invalid values.
Json describe_invalid(const Json &driver) {
    Json all = Json::object();
    for (const std::string &variable : observe::variables()) {
        const char *const value = std::getenv(variable.c_str());
        const std::string text = value ? value : "";
        const std::string complaint = observe::complaint_about(variable, text);
        std::string limit = complaint_about_limit(variable, text);
        limit = limit.empty() ? complaint_in(driver, variable) : limit;
        if (!complaint.empty() || !limit.empty()) {
            all[variable] = limit.empty() ? complaint : limit + "; no context is served";
        }
    }
    return all;
}

std::string text_at(const Json &object, const char *key) {
    const Json &value = object.at(key);
    return value.is_string() ? observe::one_line(value.get<std::string>()) : "-";
}

std::string options_text(const Json &options) {
    if (options.empty()) {
        return "  no options\n";
    }
    Table table({"  option", "kind", "value", "default"});
    std::string help;
    for (const Json &option : options) {
        // A choice has its words, "a|b", as the kind of value, and the first word as the default.
        const bool is_choice = option.at("kind") == kind_name(EMM_OPTION_CHOICE);
        const std::string given = text_at(option, "default");
        table.add({"  " + text_at(option, "name"), is_choice ? given : text_at(option, "kind"),
                   text_at(option, "value"), is_choice ? given.substr(0, given.find('|')) : given});
        help += fmt::format("  {}: {}{}\n", text_at(option, "name"), text_at(option, "help"),
                            option.at("changes").get<bool>() ? " (emm set changes it)" : "");
    }
    return table.text() + help;
}

std::string layers_text(const Json &layers) {
    std::string text;
    for (const Json &layer : layers) {
        text += fmt::format("layer          {} {}\n  {}\n  file         {}\n{}\n",
                            text_at(layer, "name"), text_at(layer, "version"),
                            text_at(layer, "description"), text_at(layer, "path"),
                            options_text(layer.at("options")));
    }
    return text;
}

std::string plugin_text(const Json &plugin, const Json &more) {
    return layers_text(plugin.at("layers")) +
           fmt::format("plugin         {} {}\n  {}\n  file         {}\n  build id     {}\n"
                       "  ABI          {}\n  selected by  {}\n  spec         {}\n{}\n",
                       text_at(plugin, "name"), text_at(plugin, "version"),
                       text_at(more, "description"), text_at(plugin, "path"),
                       text_at(more, "build_id"), text_at(plugin, "abi"),
                       text_at(plugin, "selected_by"), text_at(more, "spec"),
                       options_text(plugin.at("options")));
}

std::string driver_text(const Json &driver) {
    if (driver.contains("error")) {
        return fmt::format("\ndriver         none: {}\n", to_text(problem_from_json(driver)));
    }
    std::string text = fmt::format("\ndriver         {}CUDA {}\n  file         {}\n",
                                   driver.at("simulated").get<bool>() ? "SIMULATED, " : "",
                                   text_at(driver, "version"), text_at(driver, "name"));
    size_t ordinal = 0;
    for (const Json &device : driver.at("devices")) {
        const auto has = [&](const char *key) { return device.at(key).get<bool>() ? "" : "no "; };
        const Json &limit = device.at("limit");
        const std::string bound =
            limit.is_null() ? "" : " (limit " + in_bytes(limit.get<uint64_t>()) + ")";
        text += fmt::format("  device {:<5} {}, {}{}, compute capability {}, {}\n"
                            "               {}virtual memory management, {}sharing by descriptor\n",
                            ordinal++, text_at(device, "name"),
                            in_bytes(device.at("memory").get<uint64_t>()), bound,
                            text_at(device, "compute_capability"), text_at(device, "uuid"),
                            has("virtual_memory_management"), has("shared_by_descriptor"));
    }
    return text;
}

std::string group_text(const Json &group) {
    if (group.is_null()) {
        return "";
    }
    const auto processes = group.at("processes").get<uint64_t>();
    std::string text = fmt::format("  group {:<6} {}, {}\n", text_at(group, "name"),
                                   observe::counted(processes, "process"), text_at(group, "file"));
    for (const Json &device : group.at("devices")) {
        text += fmt::format("               {}: {} of {} taken\n", text_at(device, "uuid"),
                            observe::bytes_text(device.at("taken").get<uint64_t>()),
                            observe::bytes_text(device.at("limit").get<uint64_t>()));
    }
    return text;
}

std::string found_text(const Json &plugins) {
    std::string text = "plugins found\n";
    for (const Json &plugin : plugins) {
        const char *const mark = plugin.at("layer") == true ? "layer: " : "";
        text += fmt::format("  {:<12} {}{}\n  {:<12} {}\n", text_at(plugin, "name"), mark,
                            text_at(plugin, "description"), "", text_at(plugin, "path"));
    }
    return plugins.empty() ? "plugins found: none\n" : text;
}

std::string environment_text(const Json &environment, const Json &invalid) {
    std::string text = "\nenvironment\n";
    for (const auto &[name, value] : environment.items()) {
        text += fmt::format("  {:<31} {}\n", name,
                            value.is_string() ? observe::one_line(value.get<std::string>())
                                              : "(unset)");
        if (invalid.contains(name)) {
            text += fmt::format("  {:<31} not valid: {}\n", "", text_at(invalid, name.c_str()));
        }
    }
    return text;
}

Json describe_surroundings() {
    return {{"plugins", find_plugins()}, {"driver", driver_or_error()}};
}

// A child's end, whose message begins with the child's name, is the driver's.
Problem about_driver(Problem problem, const std::string &child) {
    if (problem.message.rfind(child + ": ", 0) == 0) {
        problem.message.replace(0, child.size(), "the driver");
        problem.code = EMM_E_NO_DRIVER;
        problem.stage = "driver";
    }
    return problem;
}

// Asks one process for the part of the report that needs libemm, so that each warning is logged
// once. If the process ends before its first answer, the plugin's entry has ended it; before its
// second, the driver has. This process tells the rest.
Json ask_child(const InfoOptions &options) {
    const std::string name = options.spec.empty() ? "the plugin in force" : options.spec;
    Progress progress;
    progress.show("loading " + name);
    const Changes chosen =
        is_list(options.spec) ? Changes{{"EMM_PLUGIN", options.spec}} : Changes();
    Child child(name, {{"job", "info"}, {"spec", options.spec}}, chosen, {options.limit});
    Json answer;
    try {
        answer = child.receive();
    } catch (const Failure &failure) {
        answer = describe_surroundings();
        answer["plugin"] = to_json(failure.problem());
        return answer;
    }
    try {
        answer.update(child.receive());
    } catch (const Failure &failure) {
        answer["plugins"] = find_plugins();
        answer["driver"] = to_json(about_driver(failure.problem(), name));
    }
    return answer;
}

// Loads each plugin in a process of its own, which only describes the plugin.
void describe_found(Json &plugins, double limit) {
    const std::unique_ptr<FILE, int (*)(FILE *)> nowhere(fopen("/dev/null", "we"), fclose);
    for (Json &plugin : plugins) {
        try {
            const auto path = plugin.at("path").get<std::string>();
            Child child(path, {{"job", "describe"}, {"name", plugin.at("name")}, {"path", path}},
                        {{"EMM_LOG", "off"}},
                        {limit, nowhere ? fileno(nowhere.get()) : STDERR_FILENO});
            plugin.update(child.receive());
        } catch (const Failure &) {
            plugin["description"] = plugin["layer"] = Json(); // `emm info NAME` tells why
        }
    }
}

} // namespace

void run_describe_job(const Json &job, Parent &parent) {
    parent.send(
        describe_file(job.at("name").get<std::string>(), job.at("path").get<std::string>()));
}

void run_info_job(const Json &job, Parent &parent) {
    const auto spec = job.at("spec").get<std::string>();
    try {
        const emm_plugin_info info = find_plugin(spec);
        parent.send({{"plugin", describe_plugin(spec, info)},
                     {"more",
                      {{"description", or_null(info.description)},
                       {"build_id", or_null(info.build_id)},
                       {"spec", or_null(info.spec)}}}});
    } catch (const Failure &failure) {
        parent.send({{"plugin", to_json(failure.problem())}});
    }
    parent.send({{"inside", "the driver"}});
    parent.send(describe_surroundings());
}

int run_info(const InfoOptions &options) {
    const Json answer = ask_child(options);
    Json report;
    for (const char *part : {"plugin", "plugins", "driver"}) {
        report[part] = answer.at(part);
    }
    describe_found(report["plugins"], options.limit);
    report["group"] = describe_group();
    report["environment"] = describe_environment();
    report["invalid"] = describe_invalid(report["driver"]);
    const bool refused = report["plugin"].contains("error");
    if (options.json) {
        print_json(report);
    } else {
        print((refused ? "" : plugin_text(report["plugin"], answer.at("more"))) +
              found_text(report["plugins"]) + driver_text(report["driver"]) +
              group_text(report["group"]) +
              environment_text(report["environment"], report["invalid"]));
        if (refused) {
            throw Failure(problem_from_json(report["plugin"]));
        }
    }
    // A machine may have no driver, but a driver that was asked for by name must be there.
    const bool lacks_driver = report["driver"].contains("error") && std::getenv("EMM_DRIVER");
    return lacks_driver || refused ? 1 : 0;
}

} // namespace emm::tool
