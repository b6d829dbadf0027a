/* main.c: runs the suites that the Makefile found, or those named on the command line.
 *
 *     build/check [SUITE...]      CHECK_SEED=N repeats a run's random inputs; CK_FORK=no for a debugger
 */
#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct suite_entry {
    const char *name;
    Suite *(*make)(void);
};

#define SUITE(name) Suite *suite_##name(void);
#include "suites.inc"
#undef SUITE

static const struct suite_entry suites[] = {
#define SUITE(name) {#name, suite_##name},
#include "suites.inc"
#undef SUITE
};

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status, (void)type, (void)where;
    return remove(path);
}

static int known(const char *name)
{
    for (size_t i = 0; i < sizeof suites / sizeof *suites; i++) {
        if (strcmp(suites[i].name, name) == 0) {
            return 1;
        }
    }
    return 0;
}

static int wanted(const char *name, int count, char **names)
{
    for (int i = 1; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return 1;
        }
    }
    return count < 2;
}

int main(int argc, char **argv)
{
    char seed[32];
    snprintf(seed, sizeof seed, "%lu", (unsigned long)time(NULL) * 1000003ul ^ (unsigned long)getpid());
    if (setenv("CHECK_SEED", seed, 0) != 0) {
        perror("setenv");
        return 1;
    }
    printf("CHECK_SEED=%s\n", getenv("CHECK_SEED"));
    for (int i = 1; i < argc; i++) {
        if (!known(argv[i])) {
            fprintf(stderr, "check: there is no suite %s\n", argv[i]);
            return 2;
        }
    }
    char scratch[] = "/tmp/flamia_check_XXXXXX";
    if (!mkdtemp(scratch) || setenv("CHECK_SCRATCH", scratch, 1) != 0) {
        perror(scratch);
        return 1;
    }
    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof suites / sizeof *suites; i++) {
        if (wanted(suites[i].name, argc, argv)) {
            srunner_add_suite(runner, suites[i].make());
        }
    }
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    nftw(scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return failed != 0;
}
