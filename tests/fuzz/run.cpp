// run ROUNDS PATH...: runs a fuzz target on each file, also those of a folder, then on ROUNDS
// variations of them and as many random texts. The seed is fixed, so that a failure can be
// repeated. Prints the number of runs.
#include "fuzz.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

using Bytes = std::vector<uint8_t>;

class Mutator {
public:
    Bytes vary(Bytes input) {
        for (size_t steps = 1 + below(4); steps > 0; --steps) {
            step(input);
        }
        return input;
    }

    Bytes invent() {
        static const std::string alphabet = "a1_:;,=%/.3ABCD25\n\x7f";
        Bytes input(below(40));
        for (uint8_t &byte : input) {
            byte = static_cast<uint8_t>(alphabet[below(alphabet.size())]);
        }
        return input;
    }

    size_t below(size_t limit) { return limit ? random_() % limit : 0; }

private:
    // The interesting part of a binary file is mostly at its front.
    size_t place(const Bytes &input) {
        return below(2) ? below(input.size()) : below(std::min(input.size(), size_t{512}));
    }

    void step(Bytes &input) {
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

Bytes read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    require(file.good(), path.c_str());
    return Bytes(std::istreambuf_iterator<char>(file), {});
}

// A copy of exactly its size, so that a read beyond it is found; the input is never at NULL, as
// with libFuzzer.
void fuzz(const Bytes &input) {
    const std::unique_ptr<uint8_t[]> copy(new uint8_t[input.size()]);
    std::copy(input.begin(), input.end(), copy.get());
    LLVMFuzzerTestOneInput(copy.get(), input.size());
}

// In an order that is the same everywhere.
std::vector<std::string> files_of(const std::string &path) {
    std::vector<std::string> files = {path};
    if (std::filesystem::is_directory(path)) {
        files.clear();
        for (const auto &entry : std::filesystem::directory_iterator(path)) {
            files.push_back(entry.path());
        }
        std::sort(files.begin(), files.end());
    }
    return files;
}

} // namespace

int main(int argc, char *argv[]) {
    require(argc >= 3, "usage: run ROUNDS PATH...");
    std::vector<Bytes> corpus;
    for (int i = 2; i < argc; ++i) {
        for (const std::string &file : files_of(argv[i])) {
            corpus.push_back(read(file));
            fuzz(corpus.back());
        }
    }
    const unsigned long rounds = std::stoul(argv[1]);
    Mutator mutator;
    for (unsigned long round = 0; round < rounds; ++round) {
        fuzz(mutator.vary(corpus[mutator.below(corpus.size())]));
        fuzz(mutator.invent());
    }
    std::printf("%zu files, %lu variations, %lu inventions\n", corpus.size(), rounds, rounds);
    return 0;
}
