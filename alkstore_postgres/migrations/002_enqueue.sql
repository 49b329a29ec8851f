-- Schema 1.1: enqueue() for triggers, prompts and other languages. What it writes is what queue.enqueue would have.
--
-- Run like 001. Two functions: one that checks and resolves, one that inserts.
--
-- Names. The body of enqueue() is BEGIN ATOMIC: its tables, functions and operators are looked up here, once, and kept by
-- their identity. So neither the caller's search_path nor a later ALTER SCHEMA ... RENAME makes them mean something else,
-- and the schema's name, which may be anything, isn't spelt out. What may refuse has to be plpgsql, whose names are looked
-- up when it runs: it touches no table, and has pg_catalog for its search_path. A function that inserts is never inlined,
-- so that this setting costs nothing but the setting of it.
--
-- Rights. Both run with their caller's (SECURITY INVOKER): whoever may insert into jobs may enqueue.
--
-- Texts with a backslash are E'': a session may have standard_conforming_strings off.

CREATE FUNCTION resolved_job(
    queue text, payload json, delay interval, run_at timestamptz, priority integer, expires interval,
    max_attempts integer, headers json, visibility_timeout interval, backoff_base integer, backoff_cap integer,
    dead_letter_retention interval,
    OUT now_at bigint, OUT due_at bigint, OUT expires_at bigint, OUT lease bigint, OUT retention bigint,
    OUT payload_bytes bytea, OUT headers_text text
)
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path TO pg_catalog, pg_temp
AS $$
DECLARE
    -- 100 years of 365.25 days (Z-1), and the end of the year 9999, in microseconds.
    longest CONSTANT numeric := 3155760000000000;
    last_instant CONSTANT numeric := 253402300799999999;
    escaped_half CONSTANT text := E'\\\\u[dD][89a-fA-F]';
    -- With each \\ taken out, a backslash begins an escape and nothing else.
    lone_half CONSTANT text := E'\\\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\\\u[dD][c-fC-F])'
        || E'|(?<!\\\\u[dD][89abAB][0-9a-fA-F]{2})\\\\u[dD][c-fC-F]';
    refusal text;
    named text;
    span interval;
    micros numeric;
    body text;
    bare text;
    token text;
    parts text[];
    entry record;
    entries integer := 0;
    size bigint := 0;
BEGIN
    -- N-1, N-2
    IF queue IS NULL THEN
        refusal := 'queue name must be a text, not NULL';
    ELSIF char_length(queue) NOT BETWEEN 1 AND 200 THEN
        refusal := format('queue name must have 1 to 200 characters, not %s', char_length(queue));
    ELSIF starts_with(queue, '_') THEN
        refusal := format('queue name %L must not start with ''_'': such names are the library''s own', queue);
    ELSIF queue COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN
        refusal := 'queue name must not contain control characters';
    END IF;

    -- O-2, J-7. What a job may say for itself is as if not given where it is NULL; a stamp has to be something.
    IF refusal IS NULL THEN
        refusal := CASE
            WHEN max_attempts < 1 THEN format('max_attempts must be from 1 to 2147483647, not %s', max_attempts)
            WHEN backoff_base IS NULL THEN 'backoff_base must be an integer, not NULL'
            WHEN backoff_base < 1 THEN format('backoff_base must be from 1 to 2147483647, not %s', backoff_base)
            WHEN backoff_cap IS NULL THEN 'backoff_cap must be an integer, not NULL'
            WHEN backoff_cap NOT BETWEEN 1 AND 3600 THEN format('backoff_cap must be from 1 to 3600, not %s', backoff_cap)
            WHEN visibility_timeout IS NULL THEN 'visibility_timeout must be an interval, not NULL'
        END;
    END IF;

    -- O-3: one now. Durations and instants are kept as whole microseconds; all of them are checked, whichever wins.
    now_at := extract(epoch FROM statement_timestamp()) * 1000000;
    due_at := now_at;
    IF refusal IS NULL AND run_at IS NOT NULL THEN
        IF isfinite(run_at) THEN
            micros := extract(epoch FROM run_at) * 1000000;
        END IF;
        IF micros BETWEEN 0 AND last_instant THEN
            due_at := micros;
        ELSE
            refusal := 'run_at must lie within the years 1970 to 9999';
        END IF;
    END IF;
    FOR named, span IN VALUES
        ('delay', delay), ('expires', expires), ('visibility_timeout', visibility_timeout),
        ('dead_letter_retention', dead_letter_retention)
    LOOP
        CONTINUE WHEN refusal IS NOT NULL OR span IS NULL;
        IF NOT isfinite(span) THEN
            refusal := format('%s must be an interval, and finite', named);
            CONTINUE;
        END IF;
        micros := round(extract(epoch FROM span) * 1000000);
        IF micros < 0 THEN
            refusal := format('%s must not be negative', named);
        ELSIF micros > longest THEN
            refusal := format('%s must be at most 100 years', named);
        ELSIF micros = 0 AND named IN ('expires', 'visibility_timeout') THEN
            refusal := format('%s must be over 0 (one microsecond at least)', named);
        END IF;
        CONTINUE WHEN refusal IS NOT NULL;
        CASE named
            WHEN 'delay' THEN due_at := now_at + micros::bigint;
            WHEN 'expires' THEN expires_at := now_at + micros::bigint;
            WHEN 'visibility_timeout' THEN lease := micros;
            ELSE retention := micros;
        END CASE;
    END LOOP;

    -- O-2: sizes are of the texts that the JSON stands for.
    headers_text := coalesce(headers::text, '{}');
    IF refusal IS NULL AND headers_text <> '{}' THEN
        bare := replace(headers_text, E'\\\\', '');
        IF json_typeof(headers) <> 'object' THEN
            refusal := format('headers must be an object of texts, not %s', json_typeof(headers));
        ELSIF bare ~ escaped_half AND bare ~ lone_half THEN
            refusal := 'headers must not contain lone surrogates';
        ELSE
            -- A text can't hold a NUL, which is a byte like any other here. Its escape becomes another byte's, after each
            -- \\ has become an escape that ends in no backslash.
            bare := replace(replace(headers_text, E'\\\\', E'\\u005c'), E'\\u0000', E'\\u0001');
            FOR entry IN
                SELECT h.key, json_typeof(h.value) AS kind, h.value #>> '{}' AS value FROM json_each(bare::json) AS h
            LOOP
                IF entry.kind <> 'string' THEN
                    refusal := format('headers[%L] must be a text, not %s', left(entry.key, 100), entry.kind);
                    EXIT;
                END IF;
                entries := entries + 1;
                size := size + octet_length(entry.key) + octet_length(entry.value);
            END LOOP;
            IF refusal IS NOT NULL THEN
                NULL;
            ELSIF entries <> (SELECT count(DISTINCT h.key COLLATE "C") FROM json_each(bare::json) AS h) THEN
                refusal := 'headers must not have the same key twice';
            ELSIF entries > 32 THEN
                refusal := format('headers must have at most 32 entries, not %s', entries);
            ELSIF size > 8192 THEN
                refusal := format('headers must have at most 8192 bytes of UTF-8, not %s', size);
            END IF;
        END IF;
    END IF;

    -- Q-ENQ-2. The type has seen to it that the payload is JSON; what is left is what Python couldn't read back. The
    -- first condition of each pair is the cheap one: nearly all payloads are done with it.
    IF refusal IS NULL AND payload IS NULL THEN
        refusal := 'payload must be JSON, not NULL (JSON''s own null is the text null)';
    END IF;
    IF refusal IS NULL THEN
        body := payload::text;
        payload_bytes := convert_to(body, 'UTF8');
        IF octet_length(payload_bytes) > 16777216 THEN
            refusal := format('payload is %s bytes, over the limit of 16777216', octet_length(payload_bytes));
        ELSIF body ~ escaped_half THEN
            IF replace(body, E'\\\\', '') ~ lone_half THEN
                refusal := 'payload holds a lone surrogate, which is not text';
            END IF;
        END IF;
    END IF;
    IF refusal IS NULL THEN
        -- Outside of its texts, a payload is brackets, numbers and words.
        IF octet_length(body) - octet_length(translate(body, '[{', '')) > 256 THEN
            bare := translate(regexp_replace(body, E'"(?:[^"\\\\]|\\\\.)*"', '', 'g'), '{}', '[]');
            bare := regexp_replace(bare, E'[^][]+', '', 'g');
            FOR level IN 1..256 LOOP
                EXIT WHEN bare = '';
                bare := replace(bare, '[]', '');  -- the innermost level
            END LOOP;
            IF bare <> '' THEN
                refusal := 'payload is nested deeper than 256 levels';
            END IF;
        END IF;
        IF refusal IS NULL AND body ~ '[0-9]{200}|[0-9][eE][+0-9][0-9]{2}' THEN
            bare := regexp_replace(body, E'"(?:[^"\\\\]|\\\\.)*"', '', 'g');
            FOR token IN
                SELECT t.found[1] FROM regexp_matches(bare, '[0-9][-+.eE0-9]*', 'g') AS t(found)
                WHERE t.found[1] ~ '[0-9]{200}|[eE][+0-9][0-9]{2}'
            LOOP
                IF token !~ '[.eE]' THEN
                    IF char_length(token) > 4300 THEN
                        refusal := 'payload has an integer of more than 4300 digits';
                    END IF;
                ELSE
                    -- The power of ten of its first digit says whether a float can hold it, but for the last one.
                    parts := regexp_match(token, E'^([0-9]+)(?:\\.([0-9]+))?(?:[eE]([-+]?)0*([0-9]*))?$');
                    CONTINUE WHEN parts[1] || coalesce(parts[2], '') !~ '[1-9]';
                    micros := CASE parts[3] WHEN '-' THEN -1 ELSE 1 END
                        * CASE WHEN char_length(parts[4]) > 12 THEN 1e12 ELSE coalesce(nullif(parts[4], ''), '0')::numeric END
                        + CASE
                            WHEN parts[1] <> '0' THEN char_length(parts[1]) - 1
                            ELSE char_length(ltrim(parts[2], '0')) - char_length(parts[2]) - 1
                        END;
                    IF micros > 308 THEN
                        refusal := 'payload has a number that is too great for a float';
                    ELSIF micros = 308 THEN
                        BEGIN
                            PERFORM token::double precision;
                        EXCEPTION WHEN numeric_value_out_of_range THEN
                            refusal := 'payload has a number that is too great for a float';
                        END;
                    END IF;
                END IF;
                EXIT WHEN refusal IS NOT NULL;
            END LOOP;
        END IF;
    END IF;

    IF refusal IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = refusal;
    END IF;
END
$$;

-- The defaults are those of QueueOptions and Backoff; a test compares them.
CREATE FUNCTION enqueue(
    queue text,
    payload json,
    delay interval DEFAULT NULL,
    run_at timestamptz DEFAULT NULL,
    priority integer DEFAULT 0,
    expires interval DEFAULT NULL,
    max_attempts integer DEFAULT 5,
    headers json DEFAULT '{}',
    visibility_timeout interval DEFAULT '60 s',
    backoff_base integer DEFAULT 5,
    backoff_cap integer DEFAULT 3600,
    dead_letter_retention interval DEFAULT NULL
) RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
    -- phase and next_at by the rule at the top of sql.py.
    INSERT INTO jobs (
        queue, codec, payload, headers, priority, max_attempts, visibility_timeout, backoff_base, backoff_cap, retention,
        created_at, run_at, expires_at, phase, next_at
    )
    SELECT
        enqueue.queue, 'json', p.payload_bytes, p.headers_text, coalesce(enqueue.priority, 0),
        coalesce(enqueue.max_attempts, 5), p.lease, enqueue.backoff_base, enqueue.backoff_cap, p.retention,
        p.now_at, p.due_at, p.expires_at,
        CASE WHEN p.due_at <= p.now_at THEN 0 ELSE 1 END,
        CASE WHEN p.due_at <= p.now_at THEN p.expires_at ELSE least(p.due_at, p.expires_at) END
    FROM
        resolved_job(
            enqueue.queue, enqueue.payload, enqueue.delay, enqueue.run_at, enqueue.priority, enqueue.expires,
            enqueue.max_attempts, enqueue.headers, enqueue.visibility_timeout, enqueue.backoff_base,
            enqueue.backoff_cap, enqueue.dead_letter_retention
        ) AS p
    RETURNING jobs.id;
END;

COMMENT ON FUNCTION resolved_job(
    text, json, interval, timestamptz, integer, interval, integer, json, interval, integer, integer, interval
) IS 'What enqueue() would write, or why it refuses to. For enqueue() alone.';
COMMENT ON FUNCTION enqueue(
    text, json, interval, timestamptz, integer, interval, integer, json, interval, integer, integer, interval
) IS 'Enqueues a job, as part of the transaction that it is called in, and returns its id. Refuses with SQLSTATE 22023 what '
    'alkstore refuses. The payload is kept as its text; of a key that stands in it twice, a worker sees the last one. A '
    'store opened with clock= goes by that clock, and this by the server''s.';
