// Kernels over small arrays, as programs for Numba write them: a few arguments, a scalar result and
// a temporary for each launch, dropped at once or kept for a while. Now and then a section of
// deferred clean-up covers some launches. The program drops kept arrays, or sometimes the garbage
// collector does so on another thread.
#include "workload/program.h"
#include "workload/workload.h"

namespace emm::tool {
namespace {

constexpr uint32_t program_thread = 0, collector_thread = 1, streams = 4;
constexpr int launches = 8000, launches_a_mark = 1000;
constexpr size_t most_kept = 150;

class Arrays {
public:
    explicit Arrays(uint64_t seed) : random_(seed) {}

    Trace run() {
        for (int launch = 0; launch < launches; launch++) {
            if (launch % launches_a_mark == 0) {
                program_.mark(launch / launches_a_mark);
            }
            if (section_left_ == 0 && random_.one_in(150)) {
                program_.begin_deferred();
                section_left_ = random_.between(5, 50);
            }
            run_kernel();
            if (section_left_ > 0 && --section_left_ == 0) {
                program_.end_deferred();
            }
        }
        program_.free_all(kept_);
        return program_.finish("arrays"); // perhaps inside a section, as programs do end
    }

private:
    uint64_t array_size() {
        constexpr uint64_t bytes = 8;
        if (random_.one_in(80)) {
            return random_.between(1, 4) * 1'000'000 * bytes;
        }
        return random_.percent(60) ? bytes << random_.below(14)
                                   : bytes * random_.between(1, 20'000);
    }

    void run_kernel() {
        const auto stream = static_cast<uint32_t>(random_.below(streams));
        std::vector<HeldBlock> arguments;
        for (uint64_t count = random_.between(1, 4); count > 0; count--) {
            arguments.push_back(program_.alloc(array_size(), program_thread, stream));
        }
        const HeldBlock scalar = program_.alloc(8, program_thread, stream);
        program_.scratch(arguments.front().size / 32 + 256, program_thread, stream);
        program_.free(scalar);
        if (random_.percent(15)) {
            kept_.push_back(arguments.back());
            arguments.pop_back();
        }
        program_.free_all(arguments);
        collect();
    }

    void collect() {
        while (kept_.size() > most_kept) {
            const size_t chosen = random_.below(kept_.size());
            std::swap(kept_[chosen], kept_.back());
            program_.free(kept_.back(), random_.one_in(5) ? collector_thread : program_thread);
            kept_.pop_back();
        }
    }

    Random random_;
    Program program_;
    std::vector<HeldBlock> kept_;
    uint64_t section_left_ = 0;
};

} // namespace

Trace generate_arrays(uint64_t seed) {
    return Arrays(seed).run();
}

} // namespace emm::tool
