/* Tests in C: a sentence and a function each. A check that fails says where, and the test goes on.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <string.h>

#include <emm/array.h>

typedef struct test {
    const char *sentence; /* NULL ends a list */
    void (*run)(void);
} test;

extern int failed_checks;

#define CHECK(condition)                                                                           \
    ((condition) ? (void)0                                                                         \
                 : (void)(failed_checks++, printf("%s:%d: %s\n    %s\n", __FILE__, __LINE__,       \
                                                  #condition, emm_last_error()->text)))

/* The call is refused with this code, and the sentence contains these words. */
#define CHECK_REFUSED(call, code, words)                                                           \
    do {                                                                                           \
        CHECK((call) == (code));                                                                   \
        CHECK(strstr(emm_last_error()->text, (words)) != NULL);                                    \
    } while (0)

extern const test error_tests[], missing_tests[], rule_tests[], exchange_tests[], dlpack_tests[];

#endif
