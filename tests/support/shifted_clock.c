/* The clock of the day, off by the seconds in the file that SHIFTED_CLOCK names; the steady one as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t shift(void) {
    char text[32];
    const char *name = getenv("SHIFTED_CLOCK");
    int file = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[length < 0 ? 0 : length] = 0;
    return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && clock == CLOCK_REALTIME)
        now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    (void)zone;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now != NULL)
        *now = precise.tv_sec;
    return precise.tv_sec;
}
