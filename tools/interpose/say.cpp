#include "say.h"

#include "observe/character.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

namespace emm::run {

void make_one_line(char *text) {
    char *end = text;
    for (size_t left = strlen(text); left > 0;) {
        const observe::Character character = observe::first_of(text, left);
        if (observe::is_plain(character)) {
            memmove(end, text, character.bytes);
            end += character.bytes;
        } else {
            *end++ = character.valid && observe::separates_lines(character.code) ? ' ' : '?';
        }
        text += character.bytes;
        left -= character.bytes;
    }
    *end = 0;
}

void say(const char *format, ...) {
    char line[2 * PATH_MAX + 512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    make_one_line(line);
    fprintf(stderr, "emm run: %s\n", line);
}

} // namespace emm::run
