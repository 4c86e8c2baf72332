// Queries over tables: eight threads, each with a stream of its own, read a batch, filter it, join
// it with a small table and aggregate. The thread that merges frees the
// result, on its own stream. Columns have data, mostly a validity mask, and sometimes characters.
#include "workload/program.h"
#include "workload/workload.h"

#include <array>
#include <deque>

namespace emm::tool {
namespace {

constexpr uint32_t threads = 8;
constexpr int queries = 200;
constexpr uint64_t live_limit = 4 * GiB; // above it, no query begins
using Table = std::vector<HeldBlock>;

struct Query {
    int stage = 0; // 0: no query runs
    uint64_t rows = 0, columns = 0;
    Table batch, filtered, joined;
};

class Queries {
public:
    explicit Queries(uint64_t seed) : random_(seed) {}

    Trace run() {
        for (int left = queries; left > 0 || running_ > 0;) {
            const auto thread = static_cast<uint32_t>(random_.below(threads));
            Query &query = queries_[thread];
            if (query.stage != 0) {
                advance(query, thread);
            } else if (left > 0 && (running_ == 0 || program_.live_bytes() < live_limit)) {
                begin(query, thread);
                if (left-- % threads == 0) {
                    program_.mark((queries - left) / static_cast<int64_t>(threads));
                }
            }
            program_.work(random_.between(1, 400));
        }
        merge(0, results_.size());
        return program_.finish("dataframe");
    }

private:
    static uint64_t padded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

    void column(Table &table, uint64_t rows, uint32_t thread) {
        static constexpr std::array<uint64_t, 6> widths = {1, 4, 4, 8, 8, 16};
        const uint64_t width = widths[random_.below(widths.size())];
        table.push_back(program_.alloc(padded(rows * width), thread, thread));
        if (random_.percent(70)) {
            table.push_back(program_.alloc(padded(rows / 8 + 1), thread, thread));
        }
        if (random_.one_in(6)) {
            table.push_back(program_.alloc(rows * random_.between(3, 30) + 1, thread, thread));
        }
    }

    Table table(uint64_t rows, uint64_t columns, uint32_t thread) {
        Table made;
        for (; columns > 0; columns--) {
            column(made, rows, thread);
        }
        return made;
    }

    void begin(Query &query, uint32_t thread) {
        query.rows = random_.spread(20'000, 4'000'000);
        query.columns = random_.between(2, 12);
        const HeldBlock packed = program_.alloc(query.rows * query.columns * 3, thread, thread);
        query.batch = table(query.rows, query.columns, thread);
        program_.free(packed, thread);
        query.stage = 1;
        running_++;
    }

    void advance(Query &query, uint32_t thread) {
        switch (query.stage++) {
        case 1:
            filter(query, thread);
            break;
        case 2:
            join(query, thread);
            break;
        case 3:
            aggregate(query, thread);
            break;
        default:
            query.stage = 0;
            running_--;
            merge(thread, results_.size() > 2 * threads ? random_.between(1, 5) : 0);
        }
    }

    void filter(Query &query, uint32_t thread) {
        const HeldBlock mask = program_.alloc(padded(query.rows), thread, thread);
        const HeldBlock order = program_.alloc(query.rows * 4, thread, thread);
        query.rows = query.rows * random_.between(2, 80) / 100 + 1;
        query.filtered = table(query.rows, query.columns, thread);
        program_.free(order, thread);
        program_.free(mask, thread);
        program_.free_all(query.batch, thread);
    }

    void join(Query &query, uint32_t thread) {
        Table small = table(query.rows / random_.between(2, 40) + 1, 3, thread);
        const HeldBlock hashes = program_.alloc(query.rows * 16, thread, thread);
        const HeldBlock left = program_.alloc(query.rows * 4, thread, thread);
        const HeldBlock right = program_.alloc(query.rows * 4, thread, thread);
        query.joined = table(query.rows, query.columns + 2, thread);
        for (const HeldBlock &held : {right, left, hashes}) {
            program_.free(held, thread);
        }
        program_.free_all(small, thread);
        program_.free_all(query.filtered, thread);
    }

    void aggregate(Query &query, uint32_t thread) {
        const uint64_t groups = query.rows / random_.spread(4, 4096) + 1;
        const HeldBlock hashes = program_.alloc(groups * 48, thread, thread);
        program_.scratch(query.rows * 8, thread, thread);
        Table sums = table(groups, random_.between(1, 6), thread);
        program_.free(hashes, thread);
        uint64_t bytes = 0;
        for (const HeldBlock &held : sums) {
            bytes += held.size;
        }
        results_.push_back(program_.alloc(bytes, thread, thread));
        program_.free_all(sums, thread);
        program_.free_all(query.joined, thread);
    }

    void merge(uint32_t thread, size_t count) {
        for (; count > 0; count--) {
            program_.free_on(results_.front(), thread, thread);
            results_.pop_front();
        }
    }

    Random random_;
    Program program_;
    std::array<Query, threads> queries_;
    std::deque<HeldBlock> results_;
    int running_ = 0;
};

} // namespace

Trace generate_dataframe(uint64_t seed) {
    return Queries(seed).run();
}

} // namespace emm::tool
