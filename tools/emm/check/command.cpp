#include "command.h"

#include "check/check.h"
#include "spec.h"
#include "usage.h"

#include <CLI/CLI.hpp>

namespace emm::tool {

Command check_command(CLI::App &app) {
    const auto options = std::make_shared<CheckOptions>();
    CLI::App *check = app.add_subcommand(
        "check", "Whether a plugin meets its requirements, each case in a process of its own");
    check->add_option("SPEC", options->spec, "the plugin")->option_text(" ");
    check
        ->add_option("--filter", options->filters,
                     "only cases with this in their name, or of this requirement; may be given\n"
                     "several times")
        ->option_text("TEXT")
        ->take_all()
        ->allow_extra_args(false);
    check->add_option("--seed", options->seed, "of what is random (default 1)")
        ->option_text("N")
        ->check(whole_number());
    check->add_option("--limit", options->limit, "seconds that a case may take (default 30)")
        ->option_text("SECONDS")
        ->check(positive_number());
    check->add_option("--jobs", options->jobs, "cases at a time (default: a processor each)")
        ->option_text("N")
        ->check(whole_number(1, 1024));
    check->add_flag("--list", options->list, "name the cases and what they ask; run none");
    json_flag(check, options->json);
    check->footer("Requirements (EMM-P-01 ...) are numbered in REQUIREMENTS.md, beside the "
                  "templates\n(`pkg-config --variable=templatedir emm`; in the sources: "
                  "plugins/). With EMM_DRIVER=sim,\nwhich needs no GPU, every case runs; on a "
                  "real driver those that only the simulated one\ncan judge are skipped by "
                  "name. Speed is not judged.");
    return {check, [options] {
                if (options->spec.empty() && !options->list) {
                    throw usage("check: expected a SPEC, found none");
                }
                expect_one_plugin("check", options->spec);
                make_paths_absolute(options->spec);
                return run_check(*options);
            }};
}

} // namespace emm::tool
