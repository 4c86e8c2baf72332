// A language model answering requests: thread 0 runs the model on stream 0, thread 1 takes requests
// in and copies their tokens on stream 1. Requests join and leave the batch as they come and end. A
// block of the cache holds the keys and values of 16 tokens; a request has a list of blocks, which
// grows with its tokens and goes back at its end.
#include "workload/program.h"
#include "workload/workload.h"

namespace emm::tool {
namespace {

constexpr uint32_t engine = 0, intake = 1, compute = 0, copy = 1;
constexpr uint64_t layers = 24, width = 2048, inner = 8192, vocabulary = 64000, half = 2;
constexpr uint64_t block_tokens = 16, block_bytes = block_tokens * layers * 2 * 512 * half;
constexpr size_t requests = 300, batch_limit = 32, blocks_limit = 4000;

struct Request {
    uint64_t tokens = 0, left = 0;
    HeldBlock input;
    std::vector<HeldBlock> cache;
};

class Serving {
public:
    explicit Serving(uint64_t seed) : random_(seed) {}

    Trace run() {
        load();
        program_.mark(0);
        for (int64_t step = 1; waiting_ > 0 || !batch_.empty(); step++) {
            while (waiting_ > 0 && batch_.size() < batch_limit && blocks_ < blocks_limit &&
                   (batch_.empty() || random_.one_in(4))) {
                admit();
            }
            answer();
            if (step % 500 == 0) {
                program_.mark(step / 500);
            }
        }
        return program_.finish("serve");
    }

private:
    // The weights stay until the process ends.
    void load() {
        for (uint64_t layer = 0; layer < layers; layer++) {
            for (const uint64_t numbers : {width * (width + 1024), width * width, 2 * width * inner,
                                           inner * width, width, width}) {
                program_.alloc(numbers * half);
            }
        }
        program_.alloc(vocabulary * width * half);
        program_.alloc(32 * MiB);
    }

    void admit() {
        waiting_--;
        Request request;
        request.tokens = random_.spread(32, 4095);
        request.left = random_.spread(8, 511);
        request.input = program_.alloc(request.tokens * 8, intake, copy);
        grow(request);
        evaluate(request.tokens, 1);
        batch_.push_back(std::move(request));
    }

    void grow(Request &request) {
        while (request.cache.size() * block_tokens < request.tokens) {
            request.cache.push_back(program_.alloc(block_bytes, engine, compute));
            blocks_++;
        }
    }

    // One pass through the model: buffers in a chain, each dropped when the next is made.
    void evaluate(uint64_t tokens, uint64_t sequences) {
        HeldBlock last = program_.alloc(tokens * width * half);
        for (const uint64_t columns : {width + 1024, width, 2 * inner, inner, width}) {
            const HeldBlock next = program_.alloc(tokens * columns * half);
            program_.free(last);
            last = next;
            program_.work(30);
        }
        const HeldBlock logits = program_.alloc(sequences * vocabulary * half);
        const HeldBlock chosen = program_.alloc(sequences * 8, engine, copy);
        program_.scratch(sequences * vocabulary * 4);
        program_.free(logits);
        program_.free(last);
        program_.free(chosen);
    }

    // One more token for every request of the batch.
    void answer() {
        if (batch_.empty()) {
            return;
        }
        for (Request &request : batch_) {
            request.tokens++;
            request.left--;
            grow(request);
        }
        evaluate(batch_.size(), batch_.size());
        for (Request &request : batch_) {
            if (request.left == 0) {
                retire(request);
            }
        }
        std::erase_if(batch_, [](const Request &request) { return request.left == 0; });
        program_.work(8000);
    }

    void retire(Request &request) {
        blocks_ -= request.cache.size();
        program_.free_all(request.cache, engine);
        program_.free(request.input, intake);
    }

    Random random_;
    Program program_;
    std::vector<Request> batch_;
    size_t waiting_ = requests, blocks_ = 0;
};

} // namespace

Trace generate_serve(uint64_t seed) {
    return Serving(seed).run();
}

} // namespace emm::tool
