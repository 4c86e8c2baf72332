#include "command.h"

#include "bench/bench.h"
#include "spec.h"
#include "usage.h"

#include <emm/plugin_helpers.h>

#include <CLI/CLI.hpp>
#include <algorithm>

namespace emm::tool {
namespace {

std::string size_problem(std::string &text) {
    uint64_t size = 0;
    return emm_parse_size(text.c_str(), &size) && size > 0
               ? ""
               : "expected a size above 0, such as 256, 64KiB or 1MiB, found '" + text + "'";
}

} // namespace

Command bench_command(CLI::App &app) {
    const auto options = std::make_shared<BenchOptions>();
    const auto sizes = std::make_shared<std::vector<std::string>>();
    CLI::App *bench =
        app.add_subcommand("bench", "What an allocation costs, side by side with references");
    plugin_option(bench, options->plugins);
    bench->add_option("--case", options->cases, "cases to run (default all), see below")
        ->option_text("NAME,...")
        ->delimiter(',');
    bench->add_option("--threads", options->threads, "numbers of threads (default 1)")
        ->option_text("N,...")
        ->delimiter(',')
        ->check(whole_number(1, 1024));
    bench
        ->add_option("--size", *sizes,
                     "block sizes, for cases that do not draw their own: 256, 64KiB, 1MiB")
        ->option_text("BYTES,...")
        ->delimiter(',')
        ->check(CLI::Validator(size_problem, "", ""));
    json_flag(bench, options->json);
    bench->footer(case_help() +
                  "\nReferences in the same run: malloc of the C library, mimalloc if it is "
                  "installed, and on a\nreal GPU cuMemAlloc, cuMemAllocAsync and "
                  "cuMemHostAlloc. All take turns, and medians are shown.\n'ns/pair' is of "
                  "short stretches, without what interrupts a few of them; 'million pairs/s'\n"
                  "is of whole rounds, interruptions included.");
    return {bench, [options, sizes] {
                std::for_each(options->plugins.begin(), options->plugins.end(),
                              make_paths_absolute);
                for (const std::string &text : *sizes) {
                    emm_parse_size(text.c_str(), &options->sizes.emplace_back());
                }
                return run_bench(*options);
            }};
}

} // namespace emm::tool
