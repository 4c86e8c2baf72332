// stress [STEPS [THREADS]]: random traffic on 16 streams of one context, through the plugin in
// EMM_PLUGIN and on the driver in EMM_DRIVER, that would show any memory that was handed out early.
// Exit status 1: something was wrong.
#include "player.h"

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr size_t common_streams = 4;

void run_players(Game &game, unsigned threads) {
    std::vector<std::thread> players;
    std::mutex mutex;
    std::string failure;
    for (unsigned number = 1; number <= threads; number++) {
        players.emplace_back([&, number] {
            try {
                Player player(game, number);
                player.play();
                player.finish();
            } catch (const std::exception &error) {
                game.stop = true;
                const std::lock_guard lock(mutex);
                failure = failure.empty() ? error.what() : failure;
            }
        });
    }
    for (std::thread &player : players) {
        player.join();
    }
    if (!failure.empty()) {
        throw std::runtime_error(failure);
    }
}

// What was passed on and never taken.
void free_the_rest(Game &game) {
    while (const auto block = game.take()) {
        game.turn.take(block->ptr, block->size, block->pattern, 1, block->stream);
        check(emm_memfree(game.context, block->ptr, block->size, block->stream), "emm_memfree");
    }
    check(game.cuda.cuCtxSynchronize(), "cuCtxSynchronize");
}

void check_the_end(Game &game) {
    if (const unsigned errors = game.turn.errors()) {
        throw std::runtime_error("patterns: expected those of the use before, found " +
                                 std::to_string(errors) + " words of others");
    }
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    check(emm_get_stats(game.context, &stats), "emm_get_stats");
    if (stats.live_count != 1) { // where errors are counted
        throw std::runtime_error("in the end: expected every block freed, found " +
                                 std::to_string(stats.live_count - 1) + " live");
    }
    std::printf("%llu allocations, at most %.1f MiB live and %.1f MiB reserved; patterns %s\n",
                static_cast<unsigned long long>(stats.allocations),
                double(stats.peak_live_bytes) / (1 << 20),
                double(stats.peak_reserved_bytes) / (1 << 20),
                game.turn.is_kernel() ? "verified by kernels" : "written, and uses watched");
}

void run(uint64_t steps, unsigned threads) {
    emm_context *context = nullptr;
    emm_context_info info = {};
    info.struct_size = sizeof info;
    check(emm_context_for_device(0, &context), "device 0");
    check(emm_context_get_info(context, &info), "device 0");
    check(Cuda().cuCtxSetCurrent(info.cuda_context), "cuCtxSetCurrent");
    {
        Game game(context, info.cuda_context);
        game.steps_left = steps;
        for (size_t i = 0; i < common_streams; i++) {
            CUstream stream = nullptr;
            check(game.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
            check(emm_stream_register(context, stream), "emm_stream_register");
            game.common.push_back(stream);
        }
        run_players(game, threads);
        free_the_rest(game);
        check_the_end(game);
        for (const CUstream stream : game.common) {
            check(emm_stream_retire(context, stream), "emm_stream_retire");
            check(game.cuda.cuStreamDestroy(stream), "cuStreamDestroy");
        }
    }
    check(emm_context_retire(context), "emm_context_retire");
}

} // namespace

int main(int argc, char *argv[]) {
    try {
        run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20000,
            argc > 2 ? unsigned(std::atoi(argv[2])) : 4);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
