#include "commands.h"

#include "manual/pages.h"
#include "print.h"
#include "problem.h"
#include "usage.h"

#include <emm/emm.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sstream>

namespace emm::tool {
namespace {

constexpr int failed = 1, wrong_usage = 2;

class CommandLine {
public:
    CommandLine() : app_(help_about, "emm") {
        app_.footer(help_footer());
        app_.require_subcommand(0, 1); // an unknown word gets an error of its own
        app_.formatter(help_formatter());
        app_.get_formatter()->column_width(34);
        app_.add_option("--generate-manual", manual_)->group(""); // for the build
        app_.set_version_flag("--version", std::string("emm ") + emm_version());
        commands_ = make_commands(app_, program_, write_signals_);
    }

    int run(int argc, char **argv) {
        try {
            if (const std::optional<int> status = parse(argc, argv)) {
                return *status;
            }
            if (!manual_.empty()) {
                print_as_is(manual::generate(app_, manual_));
                return 0;
            }
            return chosen().run();
        } catch (const Failure &failure) {
            return tell(failure.problem());
        } catch (const std::bad_alloc &) {
            return tell(unexpected(EMM_E_OUT_OF_HOST_MEMORY, "out of memory"));
        } catch (const std::exception &error) {
            return tell(
                unexpected(EMM_E_INVALID_VALUE, std::string("the tool failed: ") + error.what()));
        }
    }

private:
    // Gives the exit status if the command is done.
    std::optional<int> parse(int argc, char **argv) {
        try {
            const int count = take_program(argc, argv);
            json_ = asks_for_json({argv + 1, argv + count});
            app_.parse(count, argv);
            return std::nullopt;
        } catch (const CLI::Success &wish) {
            std::ostringstream help;
            app_.exit(wish, help);
            print(help.str());
            return 0;
        } catch (const CLI::ParseError &error) {
            const int status = tell(usage_problem(app_, error));
            print_error(json_ ? "" : "Run with --help for more information.\n");
            return status;
        }
    }

    // Cuts off the program, which follows `emm run ... --`. Returns how many words are the tool's.
    int take_program(int argc, char **argv) {
        for (int i = 2; i < argc && std::strcmp(argv[1], "run") == 0; ++i) {
            if (std::strcmp(argv[i], "--") == 0) {
                program_.assign(argv + i + 1, argv + argc);
                return i;
            }
        }
        return argc;
    }

    const Command &chosen() const {
        for (const Command &command : commands_) {
            if (command.app->parsed()) {
                return command;
            }
        }
        throw usage(fmt::format("give a command: {} (--help says what they do)",
                                fmt::join(names_of_commands(app_), ", ")));
    }

    static Problem unexpected(emm_status code, std::string message) {
        return {.code = code, .stage = "run", .message = std::move(message)};
    }

    // A trace that cannot be read is wrong input: no work has run.
    int tell(const Problem &problem) const {
        if (!json_ || !is_printed(to_json(problem))) {
            print_error(fmt::format("emm: {}\n", to_text(problem)));
        }
        return problem.stage == "usage" || problem.stage == "trace" ? wrong_usage : failed;
    }

    // Where standard output fails, standard error has the problem.
    static bool is_printed(const Json &json) {
        try {
            print_json(json);
            return true;
        } catch (const Failure &) {
            return false;
        }
    }

    WriteSignalsIgnored write_signals_;
    CLI::App app_;
    std::vector<Command> commands_;
    std::vector<std::string> program_; // behind `emm run ... --`
    std::string manual_;
    bool json_ = false;
};

} // namespace

int run_command_line(int argc, char **argv) {
    return CommandLine().run(argc, argv);
}

} // namespace emm::tool
