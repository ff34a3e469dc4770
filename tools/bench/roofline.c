/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/roofline.h"

#include "base/cpus.h"
#include "bench/limits.h"
#include "bench/number.h"
#include "cpu_kernels/ops.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum form { TEXT, CSV, JSON };

struct args {
    uint32_t threads;
    uint32_t turn_ms;
    size_t reread;
    enum form form;
};

/* The processor's name, as the kernel gives it; "unknown" elsewhere. */
static void cpu_name(char *out, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(out, size, "unknown");
    while (f && fgets(line, sizeof(line), f)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value)
            continue;
        value += strspn(value, ": ");
        value[strcspn(value, "\n\"\\")] = 0;
        snprintf(out, size, "%s", value);
        break;
    }
    if (f)
        fclose(f);
}

static void head(const struct args *a)
{
    char name[128];
    cpu_name(name, sizeof(name));
    const char *level = tr_cpu_level_name(tr_cpu_level_find(TR_CPU_AVX512));
    double uncached = (double)tr_limits_uncached() / (1 << 20),
           again = (double)a->reread / (1 << 20);
    if (a->form == JSON)
        printf("{\"cpu\":\"%s\",\"level\":\"%s\",\"cpus\":%" PRIu32 ",\"read_mib\":%.0f,"
               "\"reread_mib\":%.0f,\"threads\":[",
               name, level, tr_cpus_usable(), uncached, again);
    else if (a->form == CSV)
        printf("threads,read_gb_s,reread_gb_s,fma_gmac_s,int8_gmac_s,region_ns\n");
    else
        printf("%s, %s, %" PRIu32 " processors\n"
               "threads   read %.0f MiB   %.0f MiB again   float multiply-adds   of bytes   a "
               "meeting\n",
               name, level, tr_cpus_usable(), uncached, again);
}

static void line(const struct args *a, const struct tr_limits *l, bool first)
{
    if (a->form == JSON)
        printf("%s{\"threads\":%" PRIu32 ",\"read_gb_s\":%.2f,\"reread_gb_s\":%.2f,"
               "\"fma_gmac_s\":%.1f,\"int8_gmac_s\":%.1f,\"region_ns\":%.0f}",
               first ? "" : ",", l->threads, l->read_gb_s, l->reread_gb_s, l->fma_gmac_s,
               l->int8_gmac_s, l->region_ns);
    else if (a->form == CSV)
        printf("%" PRIu32 ",%.2f,%.2f,%.1f,%.1f,%.0f\n", l->threads, l->read_gb_s, l->reread_gb_s,
               l->fma_gmac_s, l->int8_gmac_s, l->region_ns);
    else
        printf("%7" PRIu32 "%10.1f GB/s%11.1f GB/s%18.1f G/s%9.1f G/s%8.0f ns\n", l->threads,
               l->read_gb_s, l->reread_gb_s, l->fma_gmac_s, l->int8_gmac_s, l->region_ns);
    fflush(stdout);
}

static int usage(FILE *f)
{
    fputs("usage: tokenring bench roofline [--threads N] [--model FILE | --mib N] [--turn-ms N]\n"
          "                                [--csv | --json]\n"
          "  --threads N   1, 2, 4 ... N threads; default: as many as serve would use\n"
          "  --model FILE  read as many bytes again and again as the file has\n"
          "  --mib N       or so many; default 92\n"
          "  --turn-ms N   time for each figure; default 500\n",
          f);
    return f == stdout ? 0 : 2;
}

static size_t file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 ? (size_t)st.st_size : 0;
}

/* 0, or -1 and the exit code. */
static int parse(int argc, char **argv, struct args *a, int *status)
{
    static const struct option options[] = {{"threads", 1, NULL, 't'}, {"model", 1, NULL, 'm'},
                                            {"mib", 1, NULL, 'b'},     {"turn-ms", 1, NULL, 'u'},
                                            {"csv", 0, NULL, 'c'},     {"json", 0, NULL, 'j'},
                                            {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    int o;
    *a = (struct args){.threads = tr_cpus_usable(), .turn_ms = 500, .reread = (size_t)92 << 20};
    optind = 1;
    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (o == 't')
            a->threads = tr_bench_number(optarg, 256);
        else if (o == 'm')
            a->reread = file_bytes(optarg);
        else if (o == 'b')
            a->reread = (size_t)tr_bench_number(optarg, 1 << 20) << 20;
        else if (o == 'u')
            a->turn_ms = tr_bench_number(optarg, 60000);
        else if (o == 'c' || o == 'j')
            a->form = o == 'c' ? CSV : JSON;
        else {
            *status = usage(o == 'h' ? stdout : stderr);
            return -1;
        }
    }
    if (optind == argc && a->threads && a->turn_ms && a->reread)
        return 0;
    *status = usage(stderr);
    return -1;
}

int tr_bench_roofline_main(int argc, char **argv)
{
    struct args a;
    int status = 0;
    if (parse(argc, argv, &a, &status) < 0)
        return status;
    head(&a);
    for (uint32_t n = 1; n <= a.threads;
         n = n < a.threads && 2 * n > a.threads ? a.threads : 2 * n) {
        struct tr_limits l;
        struct tr_errbuf err = {""};
        if (tr_limits_measure(n, a.reread, a.turn_ms, TR_LIMITS_ALL, &l, &err) < 0) {
            fprintf(stderr, "bench roofline: %s\n", err.msg);
            return 1;
        }
        line(&a, &l, n == 1);
    }
    if (a.form == JSON)
        printf("]}\n");
    return 0;
}
