/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/dev.cuh - the device behind the table of cpu_kernels/ops.h, and the operations that fill it.
 *
 * One operation per file.  An operation launches kernels on the device's stream and returns: it neither
 * allocates nor waits, and what it launches depends on the numbers it is given by value alone, never on what
 * lies in memory, so that a pass can be recorded once and started again.  Pointers are the device's. */
#ifndef TR_CUDA_KERNELS_DEV_CUH
#define TR_CUDA_KERNELS_DEV_CUH

#include "cuda_kernels/port.cuh"

extern "C" {
#include "cpu_kernels/ops.h"
}

enum { TR_CUDA_PASSES = 256 + 1 };

struct tr_dev {
    cudaStream_t stream;
    int n_sm;                   /* streaming multiprocessors */
    size_t shared_most;         /* bytes of shared memory that a block can have */
    bool exact;                 /* --deterministic: the bits of TR_CPU_GENERIC in all operations */
    struct tr_threads *threads; /* of the host (cpu_kernels/threads.h); NULL: the caller alone */
    void *attend_room; /* tr_cuda_attention_room bytes or more, zero at first: all calls share it */
    size_t attend_room_len;

    /* open.cu */
    char name[64];
    int major, minor; /* compute capability */
    void (*beat)(void *);
    void *beat_arg;
    cudaError_t error; /* the first one: the device has failed */
    const char *error_in;

    /* graph.cu */
    cudaGraphExec_t passes[TR_CUDA_PASSES]; /* by number of rows */
    uint32_t recording;                     /* rows of the pass that is being recorded; 0: none */
    bool opening;                           /* passes are recorded, not made */
};

extern "C" {

/* attention.cu; bytes that attention_decode.cu uses well: with fewer it splits less over the context. */
void tr_cuda_attention(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                       const struct tr_place *places, uint32_t n_rows, const float *q,
                       uint32_t n_head, const struct tr_attend_params *p, float *out);
size_t tr_cuda_attention_room(int n_sm, uint32_t n_ctx, uint32_t max_rows, uint32_t n_head,
                              uint32_t n_head_kv, uint32_t head_dim);

/* open.cu: keeps the first error; success and cudaErrorNotReady are none. */
void tr_cuda_note(struct tr_dev *dev, cudaError_t e, const char *what);
void tr_cuda_close(struct tr_dev *dev);

/* memory.cu */
void *tr_cuda_take(struct tr_dev *dev, size_t len, bool huge);
void tr_cuda_give(struct tr_dev *dev, void *mem, size_t len);
void *tr_cuda_take_host(struct tr_dev *dev, size_t len);
void tr_cuda_give_host(struct tr_dev *dev, void *mem, size_t len);
const void *tr_cuda_resident(struct tr_dev *dev, const void *mem, size_t len);
void tr_cuda_evict(struct tr_dev *dev, const void *mem, size_t len);
void tr_cuda_upload(struct tr_dev *dev, void *to, const void *from, size_t len);
void tr_cuda_download(struct tr_dev *dev, void *to, const void *from, size_t len);

/* graph.cu */
uint32_t tr_cuda_bucket(const struct tr_dev *dev, uint32_t n_rows);
bool tr_cuda_replay(struct tr_dev *dev, uint32_t n_rows);
void tr_cuda_record_pass(struct tr_dev *dev); /* ops.h: record_end */
void tr_cuda_forget_passes(struct tr_dev *dev);

/* embed.cu */
void tr_cuda_embed(struct tr_dev *dev, const struct tr_mat *m, const uint32_t *tokens,
                   uint32_t n_rows, float *out);

/* gather.cu */
void tr_cuda_gather(struct tr_dev *dev, const float *x, const uint32_t *rows, uint32_t n,
                    uint32_t dim, float *out);

/* note_ids.cu */
void tr_cuda_note_ids(struct tr_dev *dev, const struct tr_kv *kv, const struct tr_place *places,
                      const uint32_t *tokens, uint32_t n_rows);

/* products.cu */
void tr_cuda_matmul(struct tr_dev *dev, const struct tr_mat *w, const struct tr_act *a, float *out);
void tr_cuda_matmul_n(struct tr_dev *dev, uint32_t n, const struct tr_mat *const *w,
                      const struct tr_act *a, float *const *out);

/* quantise.cu */
size_t tr_cuda_act_bytes(const struct tr_dev *dev, uint32_t max_rows, uint32_t dim);
void tr_cuda_act_init(struct tr_dev *dev, struct tr_act *a, uint32_t max_rows, uint32_t dim,
                      void *mem);
void tr_cuda_act_set(struct tr_dev *dev, struct tr_act *a, const float *x, uint32_t n_rows);

/* kv_write.cu */
void tr_cuda_kv_write(struct tr_dev *dev, const struct tr_kv *kv, uint32_t layer,
                      const struct tr_place *places, uint32_t n_rows, const float *k,
                      const float *v);

/* rms_norm.cu */
void tr_cuda_rms_norm(struct tr_dev *dev, const float *x, const float *w, float eps,
                      uint32_t n_rows, uint32_t dim, float *out);
void tr_cuda_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w, float eps,
                          uint32_t n_rows, uint32_t dim, float *out);
void tr_cuda_norm_add_rms_norm(struct tr_dev *dev, float *x, const float *y, const float *w_post,
                               const float *w_next, float eps, uint32_t n_rows, uint32_t dim,
                               float *out);
void tr_cuda_head_norm(struct tr_dev *dev, float *x, const float *w, float eps, uint32_t n_rows,
                       uint32_t n_head, uint32_t head_dim);

/* rope.cu */
void tr_cuda_rope(struct tr_dev *dev, const struct tr_rope *r, float *x,
                  const struct tr_place *places, uint32_t n_rows, uint32_t n_head,
                  uint32_t head_dim);

/* rows.cu */
void tr_cuda_add(struct tr_dev *dev, float *x, const float *y, uint32_t n_rows, uint32_t dim);
void tr_cuda_add_bias(struct tr_dev *dev, float *x, const float *b, uint32_t n_rows, uint32_t dim);
void tr_cuda_scale(struct tr_dev *dev, float *x, float s, uint32_t n_rows, uint32_t dim);
void tr_cuda_silu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                      uint32_t dim);
void tr_cuda_gelu_mul(struct tr_dev *dev, float *gate, const float *up, uint32_t n_rows,
                      uint32_t dim);

/* weights.cu */
size_t tr_cuda_mat_bytes(const struct tr_dev *dev, enum tr_tensor_type type, uint32_t n_in,
                         uint32_t n_out);
void tr_cuda_mat_prepare(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type,
                         uint32_t n_in, uint32_t n_out, const void *data, void *mem);
void tr_cuda_mat_adopt(struct tr_dev *dev, struct tr_mat *m, enum tr_tensor_type type,
                       uint32_t n_in, uint32_t n_out, const void *mem);
}

#endif
