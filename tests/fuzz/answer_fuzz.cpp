// Messages to emm top are made harmless, whatever they hold: an answer, a table of sockets.
#include "file.h"
#include "top/process.h"
#include "top/view.h"

using namespace emm::tool::top;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    Process process;
    read_answer(text, process);
    for (const std::string *each :
         {&process.problem, &process.program, &process.plugin, &process.emm}) {
        require(each->empty() || std::none_of(each->begin(), each->end(),
                                              [](unsigned char c) { return c < ' ' || c == 0x7f; }),
                "what a process says of itself has no control characters");
    }
    for (const Name &name : names_in(text)) {
        require(!name.text.empty() && name.text.size() < 108, "a name is one of a socket");
    }
    return 0;
}
