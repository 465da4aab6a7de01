-- The store of calm: every candidate, score and choice in one file (store/store.h).
--
-- Every table and every column carries a comment on its own line; SQLite keeps those inside a statement, so
-- `sqlite3 calm.db .schema` shows them.  Keys and digests are SHA-256 in lower-case hexadecimal.  Rows are found by
-- content keys; numeric ids only join tables of one file; times are for people and enter no key.
--
-- To start:  select * from v_runs;   select * from v_choices where run = 1;

PRAGMA application_id = 0x63616c6d;  -- "calm"
PRAGMA user_version = 9;             -- version of this schema; a newer one is refused, an older one migrated

CREATE TABLE model (                  -- A float checkpoint that was read
  id            INTEGER PRIMARY KEY,  -- joins tables
  digest        TEXT NOT NULL UNIQUE, -- key: content hash of configuration and weights
  name          TEXT NOT NULL,        -- as typed last: an alias or a path
  path          TEXT,                 -- where it was read last
  architecture  TEXT NOT NULL,        -- as config.json says: Qwen3ForCausalLM
  dtype         TEXT,                 -- of the weights
  n_params      INTEGER,              -- number of weights
  n_blocks      INTEGER,              -- number of blocks
  hidden_size   INTEGER,              -- values per token between blocks
  vocab_size    INTEGER,              -- rows of the embedding
  bytes         INTEGER,              -- size of the weight files
  created_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))  -- UTC, for people
);

CREATE TABLE calibration (              -- Token windows that candidates are computed and scored from
  id              INTEGER PRIMARY KEY,  -- joins tables
  key             TEXT NOT NULL UNIQUE, -- key: content hash of tokens and protocol
  text_name       TEXT NOT NULL,        -- path of the text, or which bundled one
  text_digest     TEXT,                 -- SHA-256 of the text file
  tokens_digest   TEXT,                 -- SHA-256 of the token windows
  n_windows       INTEGER NOT NULL,     -- number of windows
  window_tokens   INTEGER NOT NULL,     -- tokens of a window
  n_tokens        INTEGER NOT NULL,     -- tokens of all windows together
  seed            INTEGER,              -- of the draw of windows; NULL: the first ones
  score_windows   INTEGER,              -- windows that candidates are scored on, from the front
  created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))  -- UTC, for people
);

CREATE TABLE block (                              -- One decoder or encoder block of a model
  id        INTEGER PRIMARY KEY,                  -- joins tables
  model_id  INTEGER NOT NULL REFERENCES model(id) ON DELETE CASCADE,  -- model it belongs to
  number    INTEGER NOT NULL,                     -- from 0
  name      TEXT NOT NULL,                        -- module name: model.layers.0
  kind      TEXT NOT NULL,                        -- decoder or encoder
  UNIQUE (model_id, number)
);

CREATE TABLE job (                                -- The linears of one block that read the same input
  id              INTEGER PRIMARY KEY,            -- joins tables
  block_id        INTEGER NOT NULL REFERENCES block(id) ON DELETE CASCADE,  -- block it belongs to
  role            TEXT NOT NULL,                  -- within the block: qkv, o, gate_up, down
  position        INTEGER NOT NULL,               -- order within the block, from 0
  name            TEXT NOT NULL,                  -- for people: model.layers.0.self_attn.qkv
  sublayer        TEXT NOT NULL,                  -- attention or mlp: where its output is scored
  linears         TEXT NOT NULL,                  -- module names joined by a space
  out_features    INTEGER NOT NULL,               -- rows of all its linears together
  in_features     INTEGER NOT NULL,               -- columns
  weights_digest  TEXT,                           -- SHA-256 over its weights
  input_hook      TEXT,                           -- activation.hook that describes its input
  UNIQUE (block_id, role)
);

CREATE TABLE expert (                             -- What the experts of a mixture saw
  job_id          INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE,          -- a job of the expert
  calibration_id  INTEGER NOT NULL REFERENCES calibration(id) ON DELETE CASCADE,  -- over which windows
  tokens          INTEGER NOT NULL,               -- calibration tokens that were routed to it
  PRIMARY KEY (job_id, calibration_id)
) WITHOUT ROWID;
CREATE INDEX expert_by_calibration ON expert (calibration_id);

CREATE TABLE algorithm (             -- A chain of parts with resolved options
  id     INTEGER PRIMARY KEY,        -- joins tables
  name   TEXT NOT NULL,              -- gptq-hls, or the chain when it has no name
  chain  TEXT NOT NULL,              -- canonical text with every option and each part's revision
  UNIQUE (chain, name)
);

CREATE TABLE candidate (                          -- One algorithm and scheme applied to one job; shared between runs
  id              INTEGER PRIMARY KEY,            -- joins tables
  key             TEXT NOT NULL UNIQUE,           -- key: content hash of all that determines it
  job_id          INTEGER NOT NULL REFERENCES job(id),          -- what was quantized
  calibration_id  INTEGER NOT NULL REFERENCES calibration(id),  -- from which windows
  algorithm_id    INTEGER NOT NULL REFERENCES algorithm(id),    -- by which chain
  scheme          TEXT NOT NULL,                  -- number format: w4a16_g128
  failure         TEXT,                           -- why there is no result; NULL: it succeeded
  blob            TEXT,                           -- SHA-256 of the result in the blob folder; NULL: it failed
  blob_bytes      INTEGER,                        -- size of that file
  bits_per_weight REAL,                           -- codes, scales and zeros over the number of weights
  damp            REAL,                           -- damping that the factorisation needed, relative; 0: not used
  score_rows      INTEGER,                        -- rows that were scored
  dropped_rows    INTEGER,                        -- rows that cka_drop left out
  seconds         REAL,                           -- time it took, for people
  created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),  -- UTC, for people
  CHECK ((failure IS NULL) = (blob IS NOT NULL))
);
CREATE INDEX candidate_by_job ON candidate (job_id);
CREATE INDEX candidate_by_calibration ON candidate (calibration_id);
CREATE INDEX candidate_by_algorithm ON candidate (algorithm_id);

CREATE TABLE score (                              -- One metric of one candidate; every metric is a loss, 0 = equal
  candidate_id  INTEGER NOT NULL REFERENCES candidate(id) ON DELETE CASCADE,  -- of which candidate
  unit          TEXT NOT NULL DEFAULT 'job',      -- what was replaced by this algorithm: job, sublayer, block
  metric        TEXT NOT NULL,                    -- cka (that is 1-CKA), cka_token, log_rel_mse ...
  value         REAL NOT NULL,                    -- comparable between candidates of one unit only
  PRIMARY KEY (candidate_id, unit, metric),
  CHECK (unit IN ('job', 'sublayer', 'block'))
) WITHOUT ROWID;

CREATE TABLE activation (                         -- Statistics of one hook point over all calibration tokens
  id              INTEGER PRIMARY KEY,            -- joins tables
  model_id        INTEGER NOT NULL REFERENCES model(id) ON DELETE CASCADE,        -- key, with the next two
  calibration_id  INTEGER NOT NULL REFERENCES calibration(id) ON DELETE CASCADE,  -- from which windows
  hook            TEXT NOT NULL,                  -- name: model.layers.0.mlp.down_proj.input
  point           TEXT NOT NULL,                  -- the same place in every block: down_in, block_out
  block           INTEGER,                        -- number of the block; NULL: outside the blocks
  channels        INTEGER NOT NULL,               -- values per token
  count           INTEGER NOT NULL,               -- values in all
  zeros           INTEGER NOT NULL,               -- values equal to 0
  n_tokens        INTEGER NOT NULL,               -- tokens
  n_massive       INTEGER NOT NULL,               -- tokens with max|x| > 100 and more than 1000 times median|x|
  mean            REAL,                           -- mean of x
  std             REAL,                           -- standard deviation of x
  mean_abs        REAL,                           -- mean of |x|
  rms             REAL,                           -- root of the mean of x^2
  min             REAL,                           -- least x
  max             REAL,                           -- greatest x
  max_abs         REAL,                           -- greatest |x|
  q25             REAL,                           -- 25 % quantile of |x|, zeros apart
  q50             REAL,                           -- median of |x|, zeros apart
  q75             REAL,                           -- 75 % quantile of |x|, zeros apart
  q90             REAL,                           -- 90 % quantile of |x|, zeros apart
  q99             REAL,                           -- 99 % quantile of |x|, zeros apart
  q999            REAL,                           -- 99.9 % quantile of |x|, zeros apart
  peak_median     REAL,                           -- median over tokens of max|x|
  ratio_median    REAL,                           -- median over tokens of max|x| / median|x|
  ratio_max       REAL,                           -- greatest such ratio
  ratio_mean      REAL,                           -- mean of such ratios
  ratio_std       REAL,                           -- standard deviation of such ratios
  crest_median    REAL,                           -- median over tokens of max|x| / rms(x)
  crest_max       REAL,                           -- greatest such crest
  histogram_first INTEGER,                        -- bin of the first entry of histogram
  histogram       TEXT,                           -- JSON array: counts over log10|x|, empty ends left out
  UNIQUE (model_id, calibration_id, hook)
);
CREATE INDEX activation_by_calibration ON activation (calibration_id);

CREATE TABLE activation_peak (                    -- The largest |x| of a hook point
  activation_id  INTEGER NOT NULL REFERENCES activation(id) ON DELETE CASCADE,  -- of which hook point
  rank           INTEGER NOT NULL,                -- 1 = largest |x|
  value          REAL NOT NULL,                   -- x with its sign
  window         INTEGER NOT NULL,                -- window of the calibration, from 0
  token          INTEGER NOT NULL,                -- position in the window, from 0
  channel        INTEGER NOT NULL,                -- which of the values of the token, from 0
  text           TEXT,                            -- the token's text
  PRIMARY KEY (activation_id, rank)
) WITHOUT ROWID;

CREATE TABLE token_context (                      -- Text around the tokens of activation_peak
  calibration_id  INTEGER NOT NULL REFERENCES calibration(id) ON DELETE CASCADE,  -- whose windows
  window          INTEGER NOT NULL,               -- window of the calibration, from 0
  token           INTEGER NOT NULL,               -- position in the window, from 0
  text_before     TEXT NOT NULL,                  -- text of up to 8 tokens before it
  text_after      TEXT NOT NULL,                  -- text of up to 4 tokens after it
  PRIMARY KEY (calibration_id, window, token)
) WITHOUT ROWID;

CREATE TABLE run (                                -- One execution of a recipe
  id              INTEGER PRIMARY KEY,            -- what people call it by: run 3
  key             TEXT NOT NULL,                  -- content hash of model, calibration, recipe and version
  model_id        INTEGER NOT NULL REFERENCES model(id),  -- what was quantized
  calibration_id  INTEGER REFERENCES calibration(id),     -- with which windows
  status          TEXT NOT NULL,                  -- running, finished, failed, interrupted
  command         TEXT,                           -- as typed
  recipe          TEXT NOT NULL DEFAULT '{}',     -- JSON with every option resolved
  unit            TEXT NOT NULL DEFAULT 'job',    -- what gets one choice: job, sublayer, block
  rule            TEXT,                           -- rule of choice
  metric          TEXT,                           -- that the rule reads first
  result          TEXT,                           -- what was assembled: hybrid, or a uniform algorithm's name
  reason          TEXT,                           -- the guard's verdict, or why the run failed
  bits_per_weight REAL,                           -- of the quantized linears of the result
  bytes_before    INTEGER,                        -- size of the float checkpoint
  bytes_after     INTEGER,                        -- size of the result
  version         TEXT,                           -- of calm
  n_threads       INTEGER,                        -- it was run with; changes no result
  attempts        INTEGER NOT NULL DEFAULT 1,     -- how often it was started, resuming counted
  started_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),  -- UTC, for people
  ended_at        TEXT,                           -- UTC, for people
  CHECK (status IN ('running', 'finished', 'failed', 'interrupted')),
  CHECK (unit IN ('job', 'sublayer', 'block')),
  CHECK (json_valid(recipe))
);
CREATE INDEX run_by_key ON run (key);
CREATE INDEX run_by_model ON run (model_id);
CREATE INDEX run_by_calibration ON run (calibration_id);

CREATE TABLE run_candidate (                      -- Which candidates a run considered
  run_id        INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,  -- the run
  candidate_id  INTEGER NOT NULL REFERENCES candidate(id),              -- a candidate of its pool
  PRIMARY KEY (run_id, candidate_id)
) WITHOUT ROWID;
CREATE INDEX run_candidate_by_candidate ON run_candidate (candidate_id);

CREATE TABLE choice (                             -- The plan of a run: one candidate per job, with the reason
  run_id        INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,  -- the run
  job_id        INTEGER NOT NULL REFERENCES job(id),                    -- what was decided
  candidate_id  INTEGER REFERENCES candidate(id),                       -- what was chosen; NULL: stays float
  unit          TEXT NOT NULL,                    -- name of the unit that was decided as one
  reason        TEXT NOT NULL,                    -- why this one
  advice        TEXT,                             -- of the activation rule: smooth or plain; NULL: not asked
  disagrees     INTEGER NOT NULL DEFAULT 0,       -- 1: advice and choice differ
  PRIMARY KEY (run_id, job_id)
) WITHOUT ROWID;
CREATE INDEX choice_by_job ON choice (job_id);
CREATE INDEX choice_by_candidate ON choice (candidate_id);

CREATE TABLE learned (                            -- A block that was learned from chosen candidates; shared between runs
  id              INTEGER PRIMARY KEY,            -- joins tables
  key             TEXT NOT NULL UNIQUE,           -- key: content hash of learner, windows, start and the blocks before
  block_id        INTEGER NOT NULL REFERENCES block(id),        -- the block
  calibration_id  INTEGER NOT NULL REFERENCES calibration(id),  -- from which windows
  learner         TEXT NOT NULL,                  -- canonical text with every option and the revision
  kept            TEXT,                           -- why it stayed at its start; NULL: it was learned
  blob            TEXT NOT NULL,                  -- SHA-256 of its norms and biases in the blob folder
  blob_bytes      INTEGER NOT NULL,               -- size of that file
  loss_before     REAL,                           -- mean relative error of the block's output over a few windows
  loss_after      REAL,                           -- the same in the end
  changed         INTEGER,                        -- codes that are not the start's
  seconds         REAL,                           -- time it took, for people
  created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))  -- UTC, for people
);
CREATE INDEX learned_by_block ON learned (block_id);
CREATE INDEX learned_by_calibration ON learned (calibration_id);

CREATE TABLE learned_candidate (                  -- Candidates that a learned block consists of
  learned_id    INTEGER NOT NULL REFERENCES learned(id) ON DELETE CASCADE,  -- the block
  candidate_id  INTEGER NOT NULL REFERENCES candidate(id),      -- one for each of its jobs
  start_id      INTEGER NOT NULL REFERENCES candidate(id),      -- the chosen candidate that it began as
  PRIMARY KEY (learned_id, candidate_id)
) WITHOUT ROWID;
CREATE INDEX learned_candidate_by_candidate ON learned_candidate (candidate_id);
CREATE INDEX learned_candidate_by_start ON learned_candidate (start_id);

CREATE TABLE run_learned (                        -- Which learned blocks a run has
  run_id      INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,  -- the run
  learned_id  INTEGER NOT NULL REFERENCES learned(id),                -- a block
  PRIMARY KEY (run_id, learned_id)
) WITHOUT ROWID;
CREATE INDEX run_learned_by_learned ON run_learned (learned_id);

CREATE TABLE evaluation (                         -- What was measured of a model on a text; shared between runs
  id             INTEGER PRIMARY KEY,             -- joins tables
  key            TEXT NOT NULL UNIQUE,            -- key: content hash of subject, text, windows and protocol
  model_id       INTEGER NOT NULL REFERENCES model(id) ON DELETE CASCADE,  -- float model it belongs to
  subject        TEXT NOT NULL,                   -- float, hybrid, an algorithm's name, a directory
  text_name      TEXT NOT NULL,                   -- path of the text, or which bundled one
  text_digest    TEXT,                            -- SHA-256 of the text file
  window_tokens  INTEGER NOT NULL,                -- tokens of a window
  n_windows      INTEGER NOT NULL,                -- number of windows; of an encoder: sentences
  kind           TEXT NOT NULL,                   -- predictions: of a decoder; embeddings: of an encoder's sentences
  tokens         INTEGER,                         -- predictions: number of predicted tokens
  nll            REAL,                            -- predictions: mean of -log p(next token)
  ppl            REAL,                            -- predictions: exp(nll)
  kl             REAL,                            -- predictions: mean KL(float || subject); NULL: no reference
  top1           REAL,                            -- predictions: share of tokens with the float model's first choice
  pairs          INTEGER,                         -- embeddings: pairs of sentences whose cosines were ranked
  error          REAL,                            -- embeddings: mean |q - f| / |f| of the mean-pooled embedding
  cosine         REAL,                            -- embeddings: mean cosine to the float model's
  cosine_min     REAL,                            -- embeddings: least cosine
  spearman       REAL,                            -- embeddings: rank correlation of the pairs' cosines; NULL: undefined
  created_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),  -- UTC; enters no key
  CHECK (kind IN ('predictions', 'embeddings')),
  CHECK ((kind = 'predictions') = (nll IS NOT NULL)),
  CHECK ((kind = 'embeddings') = (cosine IS NOT NULL))
);
CREATE INDEX evaluation_by_model ON evaluation (model_id);

CREATE TABLE evaluation_window (                  -- The same per window: the samples of paired comparisons
  evaluation_id  INTEGER NOT NULL REFERENCES evaluation(id) ON DELETE CASCADE,  -- of which evaluation
  number         INTEGER NOT NULL,                -- order, from 0
  tokens         INTEGER,                         -- predictions: number of predicted tokens
  nll            REAL,                            -- predictions: sum of -log p(next token)
  kl             REAL,                            -- predictions: sum of KL(float || subject)
  top1           REAL,                            -- predictions: tokens with the float model's first choice
  error          REAL,                            -- embeddings: |q - f| / |f| of the sentence
  cosine         REAL,                            -- embeddings: cosine to the float model's
  PRIMARY KEY (evaluation_id, number),
  CHECK ((nll IS NULL) = (cosine IS NOT NULL))
) WITHOUT ROWID;

CREATE TABLE divergence_quantile (                -- KL(float || subject) over the predicted tokens of a run's test
  evaluation_id  INTEGER NOT NULL REFERENCES evaluation(id) ON DELETE CASCADE,  -- of which evaluation
  share          REAL NOT NULL,                   -- of the tokens that have at most this kl: 0.5, 0.9 .. 1
  kl             REAL NOT NULL,                   -- of a token, in nats
  PRIMARY KEY (evaluation_id, share)
) WITHOUT ROWID;

CREATE TABLE divergence_position (                -- Mean KL(float || subject) by place in the window
  evaluation_id   INTEGER NOT NULL REFERENCES evaluation(id) ON DELETE CASCADE,  -- of which evaluation
  first_position  INTEGER NOT NULL,               -- first place of the range; 0, which is not predicted, is in none
  last_position   INTEGER NOT NULL,               -- last place of the range
  tokens          INTEGER NOT NULL,               -- predicted tokens there
  kl              REAL NOT NULL,                  -- their mean
  PRIMARY KEY (evaluation_id, first_position)
) WITHOUT ROWID;

CREATE TABLE divergence_token (                   -- Tokens where the subject differs most from the float model
  evaluation_id  INTEGER NOT NULL REFERENCES evaluation(id) ON DELETE CASCADE,  -- of which evaluation
  rank           INTEGER NOT NULL,                -- 1 = greatest kl
  window         INTEGER NOT NULL,                -- window of the test text, from 0
  token          INTEGER NOT NULL,                -- position in the window, from 1
  kl             REAL NOT NULL,                   -- KL(float || subject) of its prediction
  nll            REAL NOT NULL,                   -- of the subject: -log p(token)
  nll_float      REAL NOT NULL,                   -- of the float model: -log p(token)
  text_before    TEXT NOT NULL,                   -- text of up to 16 tokens before it
  text           TEXT NOT NULL,                   -- the token's text
  best           TEXT NOT NULL,                   -- what the subject predicted first
  best_float     TEXT NOT NULL,                   -- what the float model predicted first
  PRIMARY KEY (evaluation_id, rank)
) WITHOUT ROWID;

CREATE TABLE run_evaluation (                     -- Which evaluations a run used, and for what
  run_id         INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,  -- the run
  role           TEXT NOT NULL,                   -- guard, test, probe
  subject        TEXT NOT NULL,                   -- as the run calls it: float, hybrid, gptq
  evaluation_id  INTEGER NOT NULL REFERENCES evaluation(id),             -- the figures
  delta_kl       REAL,                            -- predictions: mean KL minus the hybrid's on the same windows
  delta_one_minus_cosine REAL,                    -- embeddings: mean 1 - cosine minus the hybrid's on the same windows
  delta_se       REAL,                            -- paired standard error of that difference, windows as samples
  PRIMARY KEY (run_id, role, subject)
) WITHOUT ROWID;
CREATE INDEX run_evaluation_by_evaluation ON run_evaluation (evaluation_id);

CREATE TABLE ablation (                           -- Ways of choosing side by side: what calm ablate measured
  run_id         INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,  -- the run: one scheme, one calibration
  subject        TEXT NOT NULL,                   -- gptq; job cka_token token; random 3
  kind           TEXT NOT NULL,                   -- uniform, hybrid, oracle, random, seed
  unit           TEXT,                            -- what got one choice: job, sublayer, block; NULL: uniform
  metric         TEXT,                            -- score that the rule read; NULL: none
  rule           TEXT,                            -- token, argmax; NULL: none
  bits           REAL,                            -- per weight, of the quantized linears
  seconds        REAL,                            -- that its candidates took to quantize
  differs        INTEGER,                         -- units with another candidate than the best uniform run
  failure        TEXT,                            -- why there is no such plan; NULL: it was measured
  evaluation_id  INTEGER REFERENCES evaluation(id),  -- the figures; NULL: there is no such plan
  delta_kl       REAL,                            -- predictions: mean KL minus the best uniform run's, same windows
  delta_one_minus_cosine REAL,                    -- embeddings: mean 1 - cosine minus the best uniform run's
  delta_se       REAL,                            -- paired standard error of that difference, windows as samples
  PRIMARY KEY (run_id, subject),
  CHECK (kind IN ('uniform', 'hybrid', 'oracle', 'random', 'seed')),
  CHECK (unit IN ('job', 'sublayer', 'block')),
  CHECK ((failure IS NULL) = (evaluation_id IS NOT NULL))
) WITHOUT ROWID;
CREATE INDEX ablation_by_evaluation ON ablation (evaluation_id);

CREATE TABLE artifact (                           -- A file that a run wrote
  run_id  INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,  -- the run
  path    TEXT NOT NULL,                          -- where it was written
  role    TEXT NOT NULL,                          -- weights, config, tokenizer, card, recipe, report
  bytes   INTEGER NOT NULL,                       -- size
  sha256  TEXT NOT NULL,                          -- digest of its content
  PRIMARY KEY (run_id, path)
) WITHOUT ROWID;

CREATE TABLE environment (                        -- What a run was computed with, beside calm itself
  run_id  INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,  -- the run
  name    TEXT NOT NULL,                          -- kernels, openblas, sqlite, compiler, cpu
  value   TEXT NOT NULL,                          -- in words
  PRIMARY KEY (run_id, name)
) WITHOUT ROWID;

CREATE TABLE gate (                               -- What a recipe demands of its result
  run_id    INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,  -- the run
  position  INTEGER NOT NULL,                     -- order in the recipe, from 0
  gate      TEXT NOT NULL,                        -- as the recipe says: ppl_ratio <= 1.05
  value     REAL,                                 -- what was measured; NULL: nothing
  holds     INTEGER NOT NULL,                     -- 1: the result is as demanded
  PRIMARY KEY (run_id, position)
) WITHOUT ROWID;

CREATE TABLE run_stage (                          -- Where the time of a run went, of its last attempt
  run_id            INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,  -- the run
  position          INTEGER NOT NULL,             -- order, from 0
  stage             TEXT NOT NULL,                -- read, forward, gram, factors, an algorithm, scores, guard ...
  seconds           REAL NOT NULL,                -- wall clock
  cpu_seconds       REAL NOT NULL,                -- of all threads
  forecast_seconds  REAL,                         -- wall clock by forecast; NULL: a short run, or none was made
  PRIMARY KEY (run_id, position)
) WITHOUT ROWID;

CREATE VIEW v_runs AS                             -- One row per run, newest last
SELECT r.id                              AS run,              -- run.id
       m.name                            AS model,            -- model as typed
       r.status                          AS status,           -- running, finished, failed, interrupted
       r.result                          AS result,           -- hybrid or the uniform algorithm that is better
       iif(r.bits_per_weight IS NULL, NULL, printf('%.3f', r.bits_per_weight)) AS bits_per_weight,  -- of the result
       round(r.bytes_before / 1048576.0, 1) AS mib_before,        -- size of the float checkpoint, MiB
       round(r.bytes_after / 1048576.0, 1) AS mib_after,          -- size of the result, MiB
       (SELECT printf('%.4f', e.ppl) FROM run_evaluation v JOIN evaluation e ON e.id = v.evaluation_id
         WHERE v.run_id = r.id AND v.role = 'test' AND v.subject = 'float' AND e.ppl IS NOT NULL)
                                         AS ppl_float,        -- on the test text
       (SELECT printf('%.4f', e.ppl) FROM run_evaluation v JOIN evaluation e ON e.id = v.evaluation_id
         WHERE v.run_id = r.id AND v.role = 'test' AND v.subject = r.result AND e.ppl IS NOT NULL)
                                         AS ppl_result,       -- on the test text
       (SELECT printf('%.5f', e.kl) FROM run_evaluation v JOIN evaluation e ON e.id = v.evaluation_id
         WHERE v.run_id = r.id AND v.role = 'test' AND v.subject = r.result AND e.kl IS NOT NULL)
                                         AS kl_result,        -- KL(float || result) on the test text
       (SELECT printf('%.6f', e.cosine) FROM run_evaluation v JOIN evaluation e ON e.id = v.evaluation_id
         WHERE v.run_id = r.id AND v.role = 'test' AND v.subject = r.result AND e.cosine IS NOT NULL)
                                         AS cosine_result,    -- of an encoder's embeddings on the test text
       (SELECT count(*) FROM run_candidate c WHERE c.run_id = r.id) AS candidates,  -- considered
       (SELECT count(*) FROM choice c WHERE c.run_id = r.id) AS choices,            -- jobs decided
       r.reason                          AS reason,           -- the guard's verdict
       r.command                         AS command,          -- as typed
       r.started_at                      AS started,          -- UTC
       r.ended_at                        AS ended             -- UTC
  FROM run r JOIN model m ON m.id = r.model_id
 ORDER BY r.id;

CREATE VIEW v_choices AS                          -- The plan of a run as a report: one row per job
SELECT c.run_id                          AS run,              -- run.id
       b.number                          AS block,            -- number of the block
       c.unit                            AS unit,             -- what was decided as one
       j.role                            AS job,              -- qkv, o, gate_up, down
       coalesce(a.name, 'float')         AS algorithm,        -- chosen
       k.scheme                          AS scheme,           -- chosen
       iif(s1.value IS NULL, NULL, printf('%.2e', s1.value)) AS one_minus_cka,  -- loss: 0 = equal outputs
       iif(s2.value IS NULL, NULL, printf('%.2e', s2.value))
                                         AS one_minus_cka_token,-- the same, every token counting alike
       iif(s3.value IS NULL, NULL, printf('%.2e', s3.value)) AS rel_mse,   -- squared error relative to the variance
       iif(s4.value IS NULL, NULL, printf('%.3f', s4.value))
                                         AS log_rel_mse,      -- mean log relative squared error per token
       iif(k.bits_per_weight IS NULL, NULL, printf('%.3f', k.bits_per_weight)) AS bits,  -- bits per weight
       iif(p.value IS NULL, NULL, printf('%.2f', p.value))
                                         AS activation_max,   -- largest |x| of the job's input, with sign
       CASE WHEN p.value IS NULL THEN NULL ELSE
         printf('channel %d, token %s (window %d, position %d)', p.channel,
                coalesce('"' || replace(p.text, char(10), '\n') || '"', '?'), p.window, p.token)
       END                               AS activation_at,    -- where that sits
       iif(x.crest_median IS NULL, NULL, printf('%.1f', x.crest_median))
                                         AS crest,            -- median over tokens of max|x| / rms(x)
       c.advice || CASE WHEN c.disagrees THEN ' (differs)' ELSE '' END AS advice,  -- of the activation rule
       c.reason                          AS reason            -- why this one
  FROM choice c
  JOIN run r ON r.id = c.run_id
  JOIN job j ON j.id = c.job_id
  JOIN block b ON b.id = j.block_id
  LEFT JOIN candidate k ON k.id = c.candidate_id
  LEFT JOIN algorithm a ON a.id = k.algorithm_id
  LEFT JOIN score s1 ON s1.candidate_id = k.id AND s1.unit = r.unit AND s1.metric = 'cka'
  LEFT JOIN score s2 ON s2.candidate_id = k.id AND s2.unit = r.unit AND s2.metric = 'cka_token'
  LEFT JOIN score s3 ON s3.candidate_id = k.id AND s3.unit = r.unit AND s3.metric = 'rel_mse'
  LEFT JOIN score s4 ON s4.candidate_id = k.id AND s4.unit = r.unit AND s4.metric = 'log_rel_mse'
  LEFT JOIN activation x ON x.model_id = r.model_id AND x.calibration_id = r.calibration_id AND x.hook = j.input_hook
  LEFT JOIN activation_peak p ON p.activation_id = x.id AND p.rank = 1
 ORDER BY c.run_id, b.number, j.position;

CREATE VIEW v_scores AS                           -- Every score: one row per candidate and metric
SELECT m.name                            AS model,            -- model as typed
       b.number                          AS block,            -- number of the block
       j.role                            AS job,              -- qkv, o, gate_up, down
       a.name                            AS algorithm,        -- name of the chain
       k.scheme                          AS scheme,           -- number format
       s.unit                            AS unit,             -- what was replaced: job, sublayer, block
       s.metric                          AS metric,           -- cka is 1-CKA
       printf('%.3e', s.value)           AS shown,            -- for people
       s.value                           AS value,            -- all digits
       k.id                              AS candidate,        -- candidate.id
       k.calibration_id                  AS calibration       -- calibration.id
  FROM score s
  JOIN candidate k ON k.id = s.candidate_id
  JOIN algorithm a ON a.id = k.algorithm_id
  JOIN job j ON j.id = k.job_id
  JOIN block b ON b.id = j.block_id
  JOIN model m ON m.id = b.model_id;

CREATE VIEW v_candidates AS                       -- What a run considered: one row per job and candidate
SELECT rc.run_id                         AS run,              -- run.id
       b.number                          AS block,            -- number of the block
       j.role                            AS job,              -- qkv, o, gate_up, down
       a.name                            AS algorithm,        -- name of the chain
       k.scheme                          AS scheme,           -- number format
       CASE WHEN c.candidate_id = k.id THEN 'yes' ELSE '' END AS chosen,  -- yes: it is in the plan
       iif(s1.value IS NULL, NULL, printf('%.2e', s1.value)) AS one_minus_cka,  -- loss: 0 = equal outputs
       iif(s2.value IS NULL, NULL, printf('%.2e', s2.value))
                                         AS one_minus_cka_token,-- the same, every token counting alike
       iif(s3.value IS NULL, NULL, printf('%.2e', s3.value)) AS rel_mse,   -- squared error relative to the variance
       iif(s4.value IS NULL, NULL, printf('%.3f', s4.value))
                                         AS log_rel_mse,      -- mean log relative squared error per token
       iif(k.bits_per_weight IS NULL, NULL, printf('%.3f', k.bits_per_weight)) AS bits,  -- bits per weight
       k.failure                         AS failure,          -- why it has no result
       a.chain                           AS chain,            -- every option
       k.id                              AS candidate         -- candidate.id
  FROM run_candidate rc
  JOIN run r ON r.id = rc.run_id
  JOIN candidate k ON k.id = rc.candidate_id
  JOIN algorithm a ON a.id = k.algorithm_id
  JOIN job j ON j.id = k.job_id
  JOIN block b ON b.id = j.block_id
  LEFT JOIN choice c ON c.run_id = rc.run_id AND c.job_id = k.job_id
  LEFT JOIN score s1 ON s1.candidate_id = k.id AND s1.unit = r.unit AND s1.metric = 'cka'
  LEFT JOIN score s2 ON s2.candidate_id = k.id AND s2.unit = r.unit AND s2.metric = 'cka_token'
  LEFT JOIN score s3 ON s3.candidate_id = k.id AND s3.unit = r.unit AND s3.metric = 'rel_mse'
  LEFT JOIN score s4 ON s4.candidate_id = k.id AND s4.unit = r.unit AND s4.metric = 'log_rel_mse'
 ORDER BY rc.run_id, b.number, j.position, s2.value;

CREATE VIEW v_experts AS                          -- Tokens per expert, and what was chosen for it
SELECT c.run_id                          AS run,              -- run.id
       b.number                          AS block,            -- number of the block
       j.role                            AS job,              -- experts.3.gate_up
       e.tokens                          AS tokens,           -- calibration tokens routed to the expert
       a.name                            AS algorithm,        -- chosen; "rtn for gptq": too few tokens for gptq
       k.score_rows                      AS score_rows        -- of these tokens, how many were scored
  FROM choice c
  JOIN run r ON r.id = c.run_id
  JOIN job j ON j.id = c.job_id
  JOIN block b ON b.id = j.block_id
  JOIN expert e ON e.job_id = c.job_id AND e.calibration_id = r.calibration_id
  LEFT JOIN candidate k ON k.id = c.candidate_id
  LEFT JOIN algorithm a ON a.id = k.algorithm_id
 ORDER BY c.run_id, b.number, j.position;

CREATE VIEW v_activations AS                      -- Activation maxima: one row per hook point
SELECT x.model_id                        AS model,            -- model.id
       x.calibration_id                  AS calibration,      -- calibration.id
       x.block                           AS block,            -- number of the block; empty: outside
       x.point                           AS point,            -- place in the block
       iif(p.value IS NULL, NULL, printf('%.2f', p.value)) AS max,         -- largest |x|, with sign
       p.channel                         AS channel,          -- which value of the token
       p.window                          AS window,           -- where it sits: window
       p.token                           AS position,         -- where it sits: position in the window
       replace(p.text, char(10), '\n')   AS token,            -- where it sits: the token's text
       round(x.max_abs / nullif(x.q50, 0), 1) AS max_over_median,  -- largest |x| over the median |x|
       iif(x.crest_median IS NULL, NULL, printf('%.1f', x.crest_median))
                                         AS crest,            -- median over tokens of max|x| / rms(x)
       iif(x.crest_max IS NULL, NULL, printf('%.1f', x.crest_max)) AS crest_max,  -- greatest such crest
       iif(x.ratio_max IS NULL, NULL, printf('%.1f', x.ratio_max))
                                         AS ratio_max,        -- greatest max|x| / median|x| of a token
       x.n_massive                       AS massive,          -- massive tokens
       round(x.max_abs / nullif(lag(x.max_abs) OVER
         (PARTITION BY x.model_id, x.calibration_id, x.point ORDER BY x.block), 0), 2)
                                         AS growth,           -- largest |x| over that of the block before
       iif(x.rms IS NULL, NULL, printf('%.4g', x.rms)) AS rms,             -- root mean square
       x.hook                            AS hook              -- name of the hook point
  FROM activation x
  LEFT JOIN activation_peak p ON p.activation_id = x.id AND p.rank = 1
 ORDER BY x.model_id, x.calibration_id, x.block, x.id;

CREATE VIEW v_emergence AS                        -- Where massive activations begin, per model and calibration
SELECT g.model_id                        AS model,            -- model.id
       g.calibration_id                  AS calibration,      -- calibration.id
       min(iif(g.growth >= 10, g.block, NULL)) AS emergence_block,  -- first block whose output's max is 10 times the one before; NULL: none
       round(max(g.growth), 2)           AS largest_growth,   -- greatest such quotient
       max(g.max_abs)                    AS max_block_out     -- largest |x| of any block output
  FROM (SELECT model_id, calibration_id, block, max_abs,
               max_abs / nullif(lag(max_abs) OVER (PARTITION BY model_id, calibration_id ORDER BY block), 0) AS growth
          FROM activation WHERE point = 'block_out') g
 GROUP BY g.model_id, g.calibration_id;

CREATE VIEW v_encodings AS                        -- Evaluations of encoders that a run used: sentence embeddings
SELECT v.run_id                          AS run,              -- run.id
       v.role                            AS role,             -- guard, test, probe
       v.subject                         AS subject,          -- float, hybrid, a uniform algorithm
       printf('%.6f', e.cosine)          AS cosine,           -- to the float model's embedding, mean
       printf('%.6f', e.cosine_min)      AS cosine_min,       -- the least
       printf('%.6f', e.error)           AS error,            -- relative error, mean
       iif(e.spearman IS NULL, NULL, printf('%.6f', e.spearman)) AS spearman,  -- of the cosines of all pairs
       iif(v.delta_one_minus_cosine IS NULL, NULL, printf('%+.5f', v.delta_one_minus_cosine))
                                         AS delta_one_minus_cosine,  -- 1 - cosine minus the hybrid's, same sentences
       iif(v.delta_se IS NULL, NULL, printf('%.5f', v.delta_se)) AS delta_se,  -- paired standard error of that
       e.n_windows                       AS sentences,        -- number
       e.text_name                       AS text              -- which text
  FROM run_evaluation v
  JOIN evaluation e ON e.id = v.evaluation_id
 WHERE e.kind = 'embeddings'
 ORDER BY v.run_id, v.role, e.cosine DESC;

CREATE VIEW v_evaluations AS                      -- Evaluations of decoders that a run used: perplexity and divergence
SELECT v.run_id                          AS run,              -- run.id
       v.role                            AS role,             -- guard, test, probe
       v.subject                         AS subject,          -- float, hybrid, a uniform algorithm
       printf('%.4f', e.ppl)             AS ppl,              -- perplexity
       iif(e.kl IS NULL, NULL, printf('%.5f', e.kl)) AS kl,                -- KL(float || subject) per token
       round(100 * e.top1, 2)            AS top1_percent,     -- tokens with the float model's first choice
       iif(v.delta_kl IS NULL, NULL, printf('%+.5f', v.delta_kl))
                                         AS delta_kl,         -- minus the hybrid's on the same windows
       iif(v.delta_se IS NULL, NULL, printf('%.5f', v.delta_se)) AS delta_se,  -- paired standard error of that
       e.tokens                          AS tokens,           -- predicted
       e.n_windows                       AS windows,          -- number
       e.text_name                       AS text              -- which text
  FROM run_evaluation v
  JOIN evaluation e ON e.id = v.evaluation_id
 WHERE e.kind = 'predictions'
 ORDER BY v.run_id, v.role, e.kl;

CREATE VIEW v_learned AS                          -- Learned blocks of a run: what their losses fell by
SELECT l.run_id                          AS run,              -- run.id
       b.number                          AS block,            -- from 0
       iif(d.loss_before IS NULL, NULL, printf('%.5f', d.loss_before)) AS loss_before,  -- relative error at the start
       iif(d.loss_after IS NULL, NULL, printf('%.5f', d.loss_after))   AS loss_after,   -- in the end, same windows
       d.changed                         AS changed,          -- codes that are not the start's
       d.kept                            AS kept,             -- why it stayed at its start; NULL: it was learned
       d.learner                         AS learner,          -- with every option
       iif(d.seconds IS NULL, NULL, printf('%.1f', d.seconds)) AS seconds    -- it took
  FROM run_learned l
  JOIN learned d ON d.id = l.learned_id
  JOIN block b ON b.id = d.block_id
 ORDER BY l.run_id, b.number;

CREATE VIEW v_ablation AS                         -- Ways of choosing side by side: least loss first
SELECT a.run_id                          AS run,              -- run.id
       json_extract(r.recipe, '$.scheme') AS scheme,          -- number format
       iif(a.kind = 'seed', c.seed, NULL) AS seed,            -- of the calibration windows; NULL: the others' windows
       a.kind                            AS kind,             -- uniform, hybrid, oracle, random, seed
       a.subject                         AS subject,          -- an algorithm, or unit, metric and rule
       iif(a.bits IS NULL, NULL, printf('%.3f', a.bits)) AS bits,          -- per weight
       iif(e.ppl IS NULL, NULL, printf('%.4f', e.ppl)) AS ppl,             -- perplexity
       iif(e.kl IS NULL, NULL, printf('%.5f', e.kl)) AS kl,                -- KL(float || subject)
       iif(a.delta_kl IS NULL, NULL, printf('%+.5f', a.delta_kl))
                                         AS delta_kl,         -- minus the best uniform run's
       iif(e.error IS NULL, NULL, printf('%.5f', e.error)) AS error,       -- of an encoder: relative error
       iif(e.cosine IS NULL, NULL, printf('%.5f', 1 - e.cosine))
                                         AS one_minus_cosine, -- of an encoder, to the float model's embeddings
       iif(a.delta_one_minus_cosine IS NULL, NULL, printf('%+.5f', a.delta_one_minus_cosine))
                                         AS delta_one_minus_cosine,  -- minus the best uniform run's
       iif(a.delta_se IS NULL, NULL, printf('%.5f', a.delta_se)) AS delta_se,  -- paired standard error of that
       round(100 * e.top1, 2)            AS top1_percent,     -- tokens with the float model's first choice
       iif(e.spearman IS NULL, NULL, printf('%.4f', e.spearman)) AS spearman,  -- of an encoder: rank correlation
       a.differs                         AS differs,          -- units that are not as in the best uniform run
       iif(a.seconds IS NULL, NULL, printf('%.1f', a.seconds)) AS seconds,  -- to quantize
       a.failure                         AS failure           -- why there is no such plan
  FROM ablation a
  JOIN run r ON r.id = a.run_id
  LEFT JOIN calibration c ON c.id = r.calibration_id
  LEFT JOIN evaluation e ON e.id = a.evaluation_id
 ORDER BY a.run_id, coalesce(e.kl, 1 - e.cosine) IS NULL, coalesce(e.kl, 1 - e.cosine), a.subject;

CREATE VIEW encoding AS                           -- Version 4's table of that name; goes with the next version
SELECT id                                AS evaluation_id,    -- evaluation.id
       n_windows                         AS sentences,        -- number
       pairs                             AS pairs,            -- of sentences whose cosines were ranked
       error                             AS error,            -- mean relative error
       cosine                            AS cosine,           -- mean cosine to the float model's
       cosine_min                        AS cosine_min,       -- least cosine
       spearman                          AS spearman          -- rank correlation of the pairs' cosines
  FROM evaluation
 WHERE kind = 'embeddings';
