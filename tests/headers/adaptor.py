#!/usr/bin/env python3
"""adaptor.py INCLUDE COMPILER...: which classes emm::make_plugin takes, and what it says of others."""
import shutil
import subprocess
import sys
import unittest

INCLUDE, COMPILERS = sys.argv[1], [name for name in sys.argv[2:] if shutil.which(name)]
PLUGIN = """#include <emm/plugin.h>
struct Manager {
    Manager(const emm_host &, const emm_context_info &, const char *const *) {}
    emm_status memalloc(size_t, emm_stream, emm_deviceptr *) { return EMM_OK; }
    emm_status memfree(emm_deviceptr, size_t, emm_stream) noexcept { return EMM_OK; }
    %s
};
struct Derived final : Manager { using Manager::Manager; };
emm_plugin plugin() { return emm::make_plugin<%s>("x", "1", ""); }
"""


class Adaptor(unittest.TestCase):
    def compiled(self, members, manager="Manager"):
        """Yields (accepted, what the compiler said) for each compiler."""
        self.assertTrue(COMPILERS, "no compiler to try")
        for compiler in COMPILERS:
            with self.subTest(compiler=compiler):
                done = subprocess.run(
                    [compiler, "-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                     "-I", INCLUDE, "-fsyntax-only", "-"],
                    input=PLUGIN % (members, manager), capture_output=True, text=True)
                yield done.returncode == 0, done.stderr

    def refused(self, members, slot):
        for accepted, said in self.compiled(members):
            self.assertFalse(accepted)
            self.assertIn(f"the member `{slot}` cannot serve as the slot of that name", said)

    def test_two_members_are_enough(self):
        for accepted, said in self.compiled(""):
            self.assertTrue(accepted, said)

    def test_members_may_be_inherited_by_a_final_class(self):
        for accepted, said in self.compiled("", "Derived"):
            self.assertTrue(accepted, said)

    def test_a_slot_without_a_manager_is_a_static_member(self):
        member = ("emm_status get_device_total(const emm_host &, int32_t, size_t all, const char *const *, "
                  "size_t *ret) { *ret = all; return EMM_OK; }")
        for accepted, said in self.compiled(f"static {member}"):
            self.assertTrue(accepted, said)
        for accepted, said in self.compiled(member):
            self.assertFalse(accepted)
            self.assertIn("get_device_total", said)

    def test_an_overloaded_member_is_refused_by_name(self):
        self.refused("void trim(int); emm_status trim(size_t, size_t *);", "trim")

    def test_a_private_member_is_refused_by_name(self):
        self.refused("private: emm_status reset();", "reset")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
