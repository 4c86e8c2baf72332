// run ROUNDS FILE...: runs a fuzz target on each file, then on ROUNDS variations of them and as
// many texts from nowhere. The seed is fixed, so that a failure comes again. Says how many were
// tried.
#include "fuzz.h"

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace {

using Input = std::vector<uint8_t>;

class Mutator {
public:
    Input vary(Input input) {
        for (size_t steps = 1 + below(4); steps > 0; --steps) {
            step(input);
        }
        return input;
    }

    Input invent() {
        static const std::string alphabet = "a1_:;,=%/.3ABCD25\n\x7f";
        Input input(below(40));
        for (uint8_t &byte : input) {
            byte = static_cast<uint8_t>(alphabet[below(alphabet.size())]);
        }
        return input;
    }

    size_t below(size_t limit) { return limit ? random_() % limit : 0; }

private:
    // Most of what is interesting in a binary file is at its front.
    size_t place(const Input &input) {
        return below(2) ? below(input.size()) : below(std::min(input.size(), size_t{512}));
    }

    void step(Input &input) {
        static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, '%', ':', ';', ',', '='};
        if (input.empty()) {
            input.push_back(edges[below(std::size(edges))]);
            return;
        }
        const size_t at = place(input);
        switch (below(5)) {
        case 0:
            input[at] = static_cast<uint8_t>(random_());
            break;
        case 1:
            input[at] = edges[below(std::size(edges))];
            break;
        case 2:
            input[at] = static_cast<uint8_t>(input[at] ^ (1u << below(8)));
            break;
        case 3:
            input.resize(at);
            break;
        default:
            input.insert(input.begin() + static_cast<std::ptrdiff_t>(at),
                         edges[below(std::size(edges))]);
        }
    }

    std::mt19937 random_{1};
};

Input read(const char *path) {
    std::ifstream file(path, std::ios::binary);
    require(file.good(), path);
    return Input(std::istreambuf_iterator<char>(file), {});
}

} // namespace

int main(int argc, char *argv[]) {
    require(argc >= 3, "usage: run ROUNDS FILE...");
    std::vector<Input> corpus;
    for (int i = 2; i < argc; ++i) {
        corpus.push_back(read(argv[i]));
        LLVMFuzzerTestOneInput(corpus.back().data(), corpus.back().size());
    }
    const unsigned long rounds = std::stoul(argv[1]);
    Mutator mutator;
    for (unsigned long round = 0; round < rounds; ++round) {
        const Input varied = mutator.vary(corpus[mutator.below(corpus.size())]);
        LLVMFuzzerTestOneInput(varied.data(), varied.size());
        const Input invented = mutator.invent();
        LLVMFuzzerTestOneInput(invented.data(), invented.size());
    }
    std::printf("%zu files, %lu variations, %lu inventions\n", corpus.size(), rounds, rounds);
    return 0;
}
