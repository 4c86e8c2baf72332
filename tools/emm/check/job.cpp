// A process of `emm check`: it runs one case and answers how that ended.
#include "check/case.h"
#include "check/gpu.h"
#include "check/plan.h"
#include "check/report.h"
#include "child.h"
#include "commands.h"
#include "driver.h"
#include "problem.h"

#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

using check::Case;
using check::CheckedPlugin;

std::string text(const char *maybe) {
    return maybe ? maybe : "";
}

Json describe_file(const emm_plugin_info &info) {
    Json texts = Json::array();
    for (size_t i = 0; info.options[i].name; i++) {
        texts.push_back(info.option_texts[i] ? Json(info.option_texts[i]) : Json());
    }
    return {{"path", text(info.path)}, {"option_texts", texts}};
}

check::CheckedFile file_of(const Json &told) {
    check::CheckedFile file;
    file.path = told.at("path").get<std::string>();
    for (const Json &option : told.at("option_texts")) {
        file.option_texts.push_back(option.is_null() ? std::nullopt
                                                     : std::optional(option.get<std::string>()));
    }
    return file;
}

Json describe(const std::string &spec) {
    auto info = sized<emm_plugin_info>();
    require(emm_probe_plugin(spec.c_str(), &info), "resolve");
    Json layers = Json::array();
    std::string name;
    for (size_t i = 0; info.layers[i]; i++) {
        layers.insert(layers.begin(), describe_file(*info.layers[i]));
        name += info.layers[i]->name + std::string("+");
    }
    const Json driver = describe_driver();
    Json told = describe_file(info);
    told.update({{"spec", spec},
                 {"name", name + text(info.name)},
                 {"version", text(info.version)},
                 {"layers", layers},
                 {"driver", driver},
                 {"driver_line", driver_line(driver)},
                 {"simulated", driver.at("simulated")},
                 {"devices", driver.at("devices").size()}});
    return told;
}

CheckedPlugin plugin_of(const Json &job) {
    const Json &told = job.at("plugin");
    CheckedPlugin plugin;
    static_cast<check::CheckedFile &>(plugin) = file_of(told);
    plugin.spec = job.at("spec").get<std::string>();
    for (const Json &layer : told.at("layers")) {
        plugin.layers.push_back(file_of(layer));
    }
    plugin.seed = job.at("seed").get<uint64_t>();
    plugin.mode = job.at("mode").get<std::string>();
    plugin.simulated = told.at("simulated").get<bool>();
    return plugin;
}

const Case &find_case(const std::string &name) {
    for (const Case &entry : check::cases()) {
        if (entry.name == name) {
            return entry;
        }
    }
    throw check::Violation("there is no case " + name);
}

void run_case(const Json &job) {
    const CheckedPlugin plugin = plugin_of(job);
    // GCC 13 warns of a reference that a temporary gave.
    const std::string name = job.at("case").get<std::string>();
    const Case &entry = find_case(name);
    if ((entry.needs & check::on_simulator) && !plugin.simulated) {
        throw check::Skipped("it needs the simulated driver");
    }
    if ((entry.needs & check::two_devices) && !plugin.simulated &&
        job.at("plugin").at("devices").get<size_t>() < 2) {
        throw check::Skipped("it needs two devices");
    }
    entry.run(plugin);
    const std::string race = plugin.simulated ? check::latest_race() : "";
    check::expect(race.empty(), "memory was handed over too early: {}", race);
}

Json answer_to(const Json &job) {
    try {
        run_case(job);
        return {{"outcome", "passed"}, {"message", ""}};
    } catch (const check::Skipped &skipped) {
        return {{"outcome", "skipped"}, {"message", skipped.what()}};
    } catch (const check::Violation &violation) {
        return {{"outcome", "failed"}, {"message", violation.what()}};
    } catch (const Failure &failure) {
        return {{"outcome", "failed"}, {"message", failure.what()}};
    }
}

} // namespace

void run_check_job(const Json &job, Parent &parent) {
    const auto name = job.at("job").get<std::string>();
    if (name == "check-describe") {
        parent.send(describe(job.at("spec").get<std::string>()));
    } else if (name == "check-peer") {
        parent.send(check::open_shared(job));
    } else {
        check::report_crashes(parent.descriptor());
        parent.send(answer_to(job));
    }
}

} // namespace emm::tool
