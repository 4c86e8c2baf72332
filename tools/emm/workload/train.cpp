// Training a GPT in mixed precision: thread 0 runs the forward pass and the optimizer, thread 1 the
// backward pass; stream 0 computes, stream 1 copies the next batch ahead. A layer's arithmetic
// determines the activations that it keeps for its backward pass. Batches differ in length, so
// sizes differ from step to step. Overlapped, stream 1 also sums up each layer's gradients with
// those of other ranks while stream 0 goes on, so that memory goes back and forth between the two.
#include "workload/program.h"
#include "workload/workload.h"

namespace emm::tool {
namespace {

constexpr uint64_t gpt_layers = 12, gpt_width = 768, gpt_vocabulary = 32000, batch = 8, steps = 24;
constexpr uint64_t gpt_half = 2, single = 4; // bytes of a number
constexpr uint32_t python = 0, autograd = 1; // threads
constexpr uint32_t copy_stream = 1;          // a stream; the other stream is 0
constexpr uint32_t sum_stream = 1;

class Training {
public:
    Training(uint64_t seed, bool is_overlapped) : is_overlapped_(is_overlapped), random_(seed) {
        list_parameters();
    }

    Trace run() {
        program_.alloc(8 * MiB); // the matrix library's workspace, permanently
        make(gpt_half);
        make(single);
        for (uint64_t step = 0; step < steps; step++) {
            program_.mark(static_cast<int64_t>(step));
            train(step);
        }
        return program_.finish(is_overlapped_ ? "overlap" : "train");
    }

private:
    void list_parameters() {
        parameters_ = {gpt_vocabulary * gpt_width, 1024 * gpt_width};
        for (uint64_t layer = 0; layer < gpt_layers; layer++) {
            for (const uint64_t numbers :
                 {3 * gpt_width * gpt_width, 3 * gpt_width, gpt_width * gpt_width, gpt_width,
                  4 * gpt_width * gpt_width, 4 * gpt_width, 4 * gpt_width * gpt_width, gpt_width,
                  gpt_width, gpt_width, gpt_width, gpt_width}) {
                parameters_.push_back(numbers);
            }
        }
    }

    // One tensor for each parameter, until the end of the program.
    void make(uint64_t bytes_a_number) {
        for (const uint64_t numbers : parameters_) {
            program_.alloc(numbers * bytes_a_number);
        }
    }

    void train(uint64_t step) {
        tokens_ = batch * 64 * random_.between(4, 16);
        hidden_ = tokens_ * gpt_width * gpt_half;
        const HeldBlock input = program_.alloc(tokens_ * 8, python, copy_stream);
        const HeldBlock target = program_.alloc(tokens_ * 8, python, copy_stream);
        program_.work(200);
        forward();
        head();
        backward();
        if (step == 0) {
            make(single); // Adam's two moments, made when they are first needed
            make(single);
        }
        optimize();
        program_.free(input);
        program_.free(target);
    }

    void forward() {
        HeldBlock x = program_.alloc(hidden_);
        for (uint64_t layer = 0; layer < gpt_layers; layer++) {
            std::vector<HeldBlock> kept = {x};
            x = block(kept);
            saved_.push_back(std::move(kept));
        }
        saved_.push_back({x});
    }

    // Attention and the two-layer network; activations for the backward pass stay in `kept`.
    HeldBlock block(std::vector<HeldBlock> &kept) {
        const auto keep = [&](uint64_t bytes) { kept.push_back(program_.alloc(bytes)); };
        keep(hidden_);              // normalized
        keep(2 * tokens_ * single); // its mean and deviation
        keep(3 * hidden_);          // query, key, value
        program_.scratch(hidden_);
        keep(hidden_); // attention
        keep(tokens_ * 12 * single);
        elementwise();
        keep(hidden_); // after the first residual
        keep(hidden_);
        keep(2 * tokens_ * single);
        keep(4 * hidden_); // before and after the activation
        keep(4 * hidden_);
        elementwise();
        program_.work(100);
        return program_.alloc(hidden_);
    }

    void elementwise() {
        for (uint64_t count = random_.between(2, 6); count > 0; count--) {
            program_.scratch(random_.one_in(3) ? random_.between(1, 64) * 4 : hidden_);
        }
    }

    // The logits, their loss, and its gradient.
    void head() {
        const HeldBlock logits = program_.alloc(tokens_ * gpt_vocabulary * gpt_half);
        const HeldBlock loss = program_.alloc(single);
        const HeldBlock gradient = program_.alloc(tokens_ * gpt_vocabulary * gpt_half, autograd);
        program_.free(logits, autograd);
        flowing_ = program_.alloc(hidden_, autograd);
        gradients_.push_back(program_.alloc(gpt_vocabulary * gpt_width * gpt_half, autograd));
        program_.free(gradient, autograd);
        program_.free(loss);
    }

    void backward() {
        program_.free_all(saved_.back(), autograd);
        saved_.pop_back();
        size_t parameter = parameters_.size();
        for (; !saved_.empty(); saved_.pop_back()) {
            for (int tensor = 0; tensor < 12; tensor++) {
                undo(saved_.back());
                gradients_.push_back(program_.alloc(parameters_[--parameter] * gpt_half, autograd));
            }
            program_.free_all(saved_.back(), autograd);
            if (is_overlapped_) {
                sum_up();
            }
        }
        gradients_.push_back(program_.alloc(parameters_[1] * gpt_half, autograd));
        program_.free(flowing_, autograd);
    }

    // The gradients of a layer go into one bucket, which stays until the optimizer has run.
    void sum_up() {
        uint64_t bytes = 0;
        for (const HeldBlock &gradient : gradients_) {
            bytes += gradient.size;
        }
        buckets_.push_back(program_.alloc(bytes, autograd, sum_stream));
        program_.scratch(bytes, autograd, sum_stream);
        program_.free_all(gradients_, autograd);
    }

    // One operation backwards: a new gradient flows on, and a kept activation is dropped.
    void undo(std::vector<HeldBlock> &kept) {
        const HeldBlock next = program_.alloc(random_.one_in(4) ? 4 * hidden_ : hidden_, autograd);
        program_.free(flowing_, autograd);
        flowing_ = next;
        if (!kept.empty()) {
            program_.free(kept.back(), autograd);
            kept.pop_back();
        }
        program_.work(20);
    }

    // Groups of parameters at a time, with a temporary for each.
    void optimize() {
        constexpr size_t group = 24;
        for (size_t begin = 0; begin < parameters_.size(); begin += group) {
            std::vector<HeldBlock> temporaries;
            for (size_t i = begin; i < std::min(begin + group, parameters_.size()); i++) {
                temporaries.push_back(program_.alloc(parameters_[i] * single));
            }
            program_.work(50);
            program_.free_all(temporaries);
        }
        program_.free_all(gradients_);
        program_.free_all(buckets_);
    }

    const bool is_overlapped_;
    Random random_;
    Program program_;
    std::vector<uint64_t> parameters_; // numbers in each
    std::vector<std::vector<HeldBlock>> saved_;
    std::vector<HeldBlock> gradients_, buckets_;
    HeldBlock flowing_;
    uint64_t tokens_ = 0, hidden_ = 0;
};

} // namespace

Trace generate_train(uint64_t seed) {
    return Training(seed, false).run();
}

Trace generate_overlap(uint64_t seed) {
    return Training(seed, true).run();
}

} // namespace emm::tool
