-- Schema 1.1: a view to insert jobs into, for triggers, prompts and other languages, and a guard before the table.
--
--     INSERT INTO alkstore_enqueue (queue, payload) VALUES ('emails', '{"to": "a@example.org"}');
--
-- What it writes is what queue.enqueue would have. A view with an INSTEAD OF trigger, rather than an INSERT into the table
-- itself: it has defaults for what is left out, units that people use, and may refuse before anything is written. The view
-- has no rows.
--
-- Written for SQLite 3.35: no common table expressions (none are allowed in triggers), no STRICT, and messages without the
-- value refused, as RAISE takes a literal only. The functions of JSON are needed for the INSERT, not for the migration.
--
-- Now is the host's clock, of which SQLite gives milliseconds; it is the same in all of a statement.

CREATE VIEW alkstore_enqueue AS
SELECT
    NULL AS queue, NULL AS payload, NULL AS delay, NULL AS run_at, NULL AS priority, NULL AS expires, NULL AS max_attempts,
    NULL AS headers, NULL AS visibility_timeout, NULL AS backoff_base, NULL AS backoff_cap, NULL AS dead_letter_retention
WHERE 0;

CREATE TRIGGER alkstore_enqueue_insert INSTEAD OF INSERT ON alkstore_enqueue
BEGIN
    -- Payloads are UTF-8, and a cast to BLOB gives the bytes of the database's own encoding.
    SELECT RAISE(ABORT, 'alkstore: the database must have the encoding UTF-8') WHERE length(CAST('a' AS BLOB)) <> 1;

    -- N-1, N-2. length() ends at a NUL, which is looked for in the bytes.
    SELECT RAISE(ABORT, 'alkstore: queue name must be a text') WHERE typeof(NEW.queue) <> 'text';
    SELECT RAISE(ABORT, 'alkstore: queue name must not contain control characters')
    WHERE instr(CAST(NEW.queue AS BLOB), x'00')
        OR NEW.queue GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*';
    SELECT RAISE(ABORT, 'alkstore: queue name must have 1 to 200 characters') WHERE length(NEW.queue) NOT BETWEEN 1 AND 200;
    SELECT RAISE(ABORT, 'alkstore: queue name must not start with ''_'': such names are the library''s own')
    WHERE substr(NEW.queue, 1, 1) = '_';

    -- O-2, J-7, Z-1
    SELECT RAISE(ABORT, 'alkstore: priority must be an integer from -2147483648 to 2147483647')
    WHERE typeof(NEW.priority) NOT IN ('null', 'integer') OR NEW.priority NOT BETWEEN -2147483648 AND 2147483647;
    SELECT RAISE(ABORT, 'alkstore: max_attempts must be an integer from 1 to 2147483647')
    WHERE typeof(NEW.max_attempts) NOT IN ('null', 'integer') OR NEW.max_attempts NOT BETWEEN 1 AND 2147483647;
    SELECT RAISE(ABORT, 'alkstore: backoff_base must be an integer from 1 to 2147483647')
    WHERE typeof(NEW.backoff_base) NOT IN ('null', 'integer') OR NEW.backoff_base NOT BETWEEN 1 AND 2147483647;
    SELECT RAISE(ABORT, 'alkstore: backoff_cap must be an integer from 1 to 3600')
    WHERE typeof(NEW.backoff_cap) NOT IN ('null', 'integer') OR NEW.backoff_cap NOT BETWEEN 1 AND 3600;
    SELECT RAISE(ABORT, 'alkstore: delay must be a number of seconds')
    WHERE typeof(NEW.delay) NOT IN ('null', 'integer', 'real');
    SELECT RAISE(ABORT, 'alkstore: delay must be at most 100 years')
    WHERE NEW.delay > 3155760000;
    SELECT RAISE(ABORT, 'alkstore: delay must not be negative') WHERE NEW.delay < 0;
    SELECT RAISE(ABORT, 'alkstore: expires must be a number of seconds')
    WHERE typeof(NEW.expires) NOT IN ('null', 'integer', 'real');
    SELECT RAISE(ABORT, 'alkstore: expires must be at most 100 years')
    WHERE NEW.expires > 3155760000;
    SELECT RAISE(ABORT, 'alkstore: expires must not be negative') WHERE NEW.expires < 0;
    SELECT RAISE(ABORT, 'alkstore: expires must be over 0 (one microsecond at least)')
    WHERE NEW.expires <= 0.0000005;
    SELECT RAISE(ABORT, 'alkstore: visibility_timeout must be a number of seconds')
    WHERE typeof(NEW.visibility_timeout) NOT IN ('null', 'integer', 'real');
    SELECT RAISE(ABORT, 'alkstore: visibility_timeout must be at most 100 years')
    WHERE NEW.visibility_timeout > 3155760000;
    SELECT RAISE(ABORT, 'alkstore: visibility_timeout must not be negative') WHERE NEW.visibility_timeout < 0;
    SELECT RAISE(ABORT, 'alkstore: visibility_timeout must be over 0 (one microsecond at least)')
    WHERE NEW.visibility_timeout <= 0.0000005;
    SELECT RAISE(ABORT, 'alkstore: dead_letter_retention must be a number of seconds')
    WHERE typeof(NEW.dead_letter_retention) NOT IN ('null', 'integer', 'real');
    SELECT RAISE(ABORT, 'alkstore: dead_letter_retention must be at most 100 years')
    WHERE NEW.dead_letter_retention > 3155760000;
    SELECT RAISE(ABORT, 'alkstore: dead_letter_retention must not be negative') WHERE NEW.dead_letter_retention < 0;

    -- An instant is a text of ISO 8601 to the microsecond; without a zone it is UTC, as all that SQLite's functions give.
    -- (One that doesn't come back as it was, such as the 30th of February, isn't in the calendar.)
    SELECT RAISE(ABORT, 'alkstore: run_at must be a text like 2030-01-31 12:00:00.000000+00:00')
    WHERE NEW.run_at IS NOT NULL AND CASE
        WHEN typeof(NEW.run_at) <> 'text' OR instr(CAST(NEW.run_at AS BLOB), x'00') OR NOT NEW.run_at GLOB
            '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][ T][0-9][0-9]:[0-9][0-9]:[0-9][0-9]*' THEN 1
        WHEN strftime('%Y-%m-%d %H:%M:%S', substr(NEW.run_at, 1, 19), '+0 days')
            IS NOT replace(substr(NEW.run_at, 1, 19), 'T', ' ') THEN 1
        WHEN substr(NEW.run_at, 20, 1) = '.' AND NOT (
            length(ltrim(substr(NEW.run_at, 21), '0123456789')) BETWEEN length(NEW.run_at) - 26 AND length(NEW.run_at) - 21
        ) THEN 1
        ELSE (
            SELECT NOT (zone IN ('', 'Z') OR zone GLOB '[-+][0-9][0-9]:[0-9][0-9]')
                OR strftime('%s', substr(NEW.run_at, 1, 19) || zone) IS NULL
            FROM (SELECT CASE substr(NEW.run_at, 20, 1)
                WHEN '.' THEN ltrim(substr(NEW.run_at, 21), '0123456789') ELSE substr(NEW.run_at, 20) END AS zone)
        )
    END;
    SELECT RAISE(ABORT, 'alkstore: run_at must lie within the years 1970 to 9999')
    WHERE CAST(strftime('%s', substr(NEW.run_at, 1, 19) || CASE substr(NEW.run_at, 20, 1)
        WHEN '.' THEN ltrim(substr(NEW.run_at, 21), '0123456789') ELSE substr(NEW.run_at, 20) END) AS INTEGER)
        NOT BETWEEN 0 AND 253402300799;

    -- O-2: sizes are of the texts that the JSON stands for. Of a text SQLite gives nothing from a NUL on, so that its escape
    -- is made another byte's, after each \\ has become an escape that ends in no backslash.
    SELECT RAISE(ABORT, 'alkstore: headers must be a JSON object of texts, as text')
    WHERE NEW.headers IS NOT NULL
        AND (typeof(NEW.headers) <> 'text' OR instr(CAST(NEW.headers AS BLOB), x'00') OR NOT json_valid(NEW.headers));
    SELECT RAISE(ABORT, 'alkstore: headers must be a JSON object of texts, as text')
    WHERE json_type(NEW.headers) <> 'object'
        OR EXISTS (SELECT 1 FROM json_each(coalesce(NEW.headers, '{}')) AS h WHERE h.type <> 'text');
    SELECT RAISE(ABORT, 'alkstore: headers must not contain lone surrogates')
    FROM (SELECT replace(NEW.headers, '\\', '') AS t)
    WHERE instr(NEW.headers, '\u') AND (
        t GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR t GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*'
        OR t GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*'
        OR t GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*'
        OR t GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR t GLOB '*[^0-9a-fA-F]?\u[dD][c-fC-F]*'
        OR t GLOB '*[^89abAB]??\u[dD][c-fC-F]*' OR t GLOB '*[^dD]???\u[dD][c-fC-F]*'
        OR t GLOB '*[^u]????\u[dD][c-fC-F]*' OR t GLOB '*[^\]?????\u[dD][c-fC-F]*'
    );
    SELECT CASE
        WHEN count(*) > count(DISTINCT h.key) THEN RAISE(ABORT, 'alkstore: headers must not have the same key twice')
        WHEN count(*) > 32 THEN RAISE(ABORT, 'alkstore: headers must have at most 32 entries')
        WHEN sum(length(CAST(h.key AS BLOB)) + length(CAST(h.value AS BLOB))) > 8192
            THEN RAISE(ABORT, 'alkstore: headers must have at most 8192 bytes of UTF-8')
    END
    FROM json_each(replace(replace(coalesce(NEW.headers, '{}'), '\\', '\u005c'), '\u0000', '\u0001')) AS h;

    -- Q-ENQ-2: JSON, and of that only what Python can read back.
    SELECT RAISE(ABORT, 'alkstore: payload must be JSON, as text') WHERE typeof(NEW.payload) <> 'text';
    SELECT RAISE(ABORT, 'alkstore: payload is over the limit of 16777216 bytes')
    WHERE length(CAST(NEW.payload AS BLOB)) > 16777216;
    SELECT RAISE(ABORT, 'alkstore: payload must be JSON, as text')
    WHERE instr(CAST(NEW.payload AS BLOB), x'00') OR NOT json_valid(NEW.payload);
    -- With each \\ taken out, a backslash begins an escape and nothing else. A first half that no second half follows, or
    -- a second half with no first half before it; the quotes around a text see to it that something stands there.
    SELECT RAISE(ABORT, 'alkstore: payload holds a lone surrogate, which is not text')
    FROM (SELECT replace(NEW.payload, '\\', '') AS t)
    WHERE instr(NEW.payload, '\u') AND (
        t GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR t GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*'
        OR t GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*'
        OR t GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*'
        OR t GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR t GLOB '*[^0-9a-fA-F]?\u[dD][c-fC-F]*'
        OR t GLOB '*[^89abAB]??\u[dD][c-fC-F]*' OR t GLOB '*[^dD]???\u[dD][c-fC-F]*'
        OR t GLOB '*[^u]????\u[dD][c-fC-F]*' OR t GLOB '*[^\]?????\u[dD][c-fC-F]*'
    );
    -- What follows looks at what stands outside of texts: cut at its quotes (the escaped ones are gone), each second part. The
    -- first condition is the cheap one, and nearly all payloads are done with it.
    SELECT RAISE(ABORT, 'alkstore: payload is nested deeper than 256 levels')
    WHERE CASE WHEN length(NEW.payload) - length(replace(replace(NEW.payload, '[', ''), '{', '')) > 256 THEN (
        SELECT max(level) > 256 FROM (
            SELECT sum(CASE k.value WHEN '+' THEN 1 WHEN '-' THEN -1 ELSE 0 END) OVER (ORDER BY s.key, k.key) AS level
            FROM
                json_each('["' || replace(
                    replace(replace(replace(replace(replace(NEW.payload, '\\', ''), '\"', ''), char(9), ' '), char(10), ' '),
                    char(13), ' '), '"', '","'
                ) || '"]') AS s,
                json_each('["' || replace(replace(replace(replace(replace(s.value, '-', ''), '[', '","+","'), '{', '","+","'),
                    ']', '","-","'), '}', '","-","') || '"]') AS k
            WHERE s.key % 2 = 0 AND k.value IN ('+', '-')
        )
    ) END;
    -- 200 times a class: a pattern of zeros, each replaced. A float of fewer digits, and two in its exponent, is finite.
    SELECT CASE
        WHEN max(token NOT GLOB '*[.eE]*' AND length(ltrim(token, '-')) > 4300)
            THEN RAISE(ABORT, 'alkstore: payload has an integer of more than 4300 digits')
        WHEN max(token GLOB '*[.eE]*' AND abs(CAST(token AS REAL)) > 1.7976931348623157e308)
            THEN RAISE(ABORT, 'alkstore: payload has a number that is too great for a float')
    END
    FROM (
        SELECT k.value AS token
        FROM
                json_each('["' || replace(
                    replace(replace(replace(replace(replace(NEW.payload, '\\', ''), '\"', ''), char(9), ' '), char(10), ' '),
                    char(13), ' '), '"', '","'
                ) || '"]') AS s,
                json_each('["' || replace(replace(replace(replace(replace(replace(replace(
                    s.value, ',', '","'), ':', '","'), '[', '","'), '{', '","'), ']', '","'), '}', '","'), ' ', '","'
                ) || '"]') AS k
        WHERE s.key % 2 = 0 AND k.value GLOB '*[0-9]*'
    )
    WHERE NEW.payload GLOB '*[0-9][eE][0-9+][0-9][0-9]*'
        OR NEW.payload GLOB '*' || replace(hex(zeroblob(100)), '0', '[0-9]') || '*';

    -- O-3: one now; delay wins over run_at. phase and next_at by the rule in sql.py.
    INSERT INTO alkstore_jobs (
        queue, priority, run_at, max_attempts, expires_at, created_at, visibility_timeout, backoff_base, backoff_cap,
        retention, codec, headers, payload, phase, next_at
    )
    SELECT
        NEW.queue, coalesce(NEW.priority, 0), due, coalesce(NEW.max_attempts, 5), ends, now,
        coalesce(lease, 60000000), coalesce(NEW.backoff_base, 5), coalesce(NEW.backoff_cap, 3600), kept,
        'json', coalesce(NEW.headers, '{}'), CAST(NEW.payload AS BLOB),
        CASE WHEN due <= now THEN 0 ELSE 1 END,
        CASE WHEN due <= now THEN ends ELSE min(due, coalesce(ends, due)) END
    FROM (
        SELECT
            now, coalesce(now + delay, run_at, now) AS due, now + expires AS ends, lease, kept
        FROM (
            SELECT
                now, run_at,
                delay_s * 1000000 + CAST(delay_f AS INTEGER) + (
                    delay_f - CAST(delay_f AS INTEGER) > 0.5
                    OR (delay_f - CAST(delay_f AS INTEGER) = 0.5 AND CAST(delay_f AS INTEGER) % 2 = 1)
                ) AS delay,
                expires_s * 1000000 + CAST(expires_f AS INTEGER) + (
                    expires_f - CAST(expires_f AS INTEGER) > 0.5
                    OR (expires_f - CAST(expires_f AS INTEGER) = 0.5 AND CAST(expires_f AS INTEGER) % 2 = 1)
                ) AS expires,
                lease_s * 1000000 + CAST(lease_f AS INTEGER) + (
                    lease_f - CAST(lease_f AS INTEGER) > 0.5
                    OR (lease_f - CAST(lease_f AS INTEGER) = 0.5 AND CAST(lease_f AS INTEGER) % 2 = 1)
                ) AS lease,
                kept_s * 1000000 + CAST(kept_f AS INTEGER) + (
                    kept_f - CAST(kept_f AS INTEGER) > 0.5
                    OR (kept_f - CAST(kept_f AS INTEGER) = 0.5 AND CAST(kept_f AS INTEGER) % 2 = 1)
                ) AS kept
            FROM (
                -- Half a microsecond goes to the even one, as in the front; the fraction by itself is exact.
                SELECT
                    CAST(strftime('%s', 'now') || substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS now,
                    CAST(NEW.delay AS INTEGER) AS delay_s,
                    (NEW.delay - CAST(NEW.delay AS INTEGER)) * 1e6 AS delay_f,
                    CAST(NEW.expires AS INTEGER) AS expires_s,
                    (NEW.expires - CAST(NEW.expires AS INTEGER)) * 1e6 AS expires_f,
                    CAST(NEW.visibility_timeout AS INTEGER) AS lease_s,
                    (NEW.visibility_timeout - CAST(NEW.visibility_timeout AS INTEGER)) * 1e6 AS lease_f,
                    CAST(NEW.dead_letter_retention AS INTEGER) AS kept_s,
                    (NEW.dead_letter_retention - CAST(NEW.dead_letter_retention AS INTEGER)) * 1e6 AS kept_f,
                    CAST(strftime('%s', substr(NEW.run_at, 1, 19) || CASE substr(NEW.run_at, 20, 1)
                        WHEN '.' THEN ltrim(substr(NEW.run_at, 21), '0123456789') ELSE substr(NEW.run_at, 20)
                    END) AS INTEGER) * 1000000 + CASE substr(NEW.run_at, 20, 1)
                        -- As far as there are digits: the zone is no part of a number.
                        WHEN '.' THEN CAST(round(CAST('0' || substr(NEW.run_at, 20, 7) AS REAL) * 1e6) AS INTEGER)
                        ELSE 0
                    END AS run_at
            )
        )
    );
END;

-- For whoever writes into the table itself: what a row can be seen to have wrong, beside the table's own constraints.
CREATE TRIGGER alkstore_jobs_guard BEFORE INSERT ON alkstore_jobs
WHEN typeof(NEW.queue) <> 'text' OR length(NEW.queue) NOT BETWEEN 1 AND 200 OR typeof(NEW.priority) <> 'integer'
    OR NEW.priority NOT BETWEEN -2147483648 AND 2147483647 OR typeof(NEW.max_attempts) <> 'integer'
    OR NEW.max_attempts NOT BETWEEN 1 AND 2147483647 OR typeof(NEW.backoff_base) <> 'integer'
    OR NEW.backoff_base NOT BETWEEN 1 AND 2147483647 OR typeof(NEW.backoff_cap) <> 'integer'
    OR NEW.backoff_cap NOT BETWEEN 1 AND 3600 OR typeof(NEW.visibility_timeout) <> 'integer'
    OR NEW.visibility_timeout NOT BETWEEN 1 AND 3155760000000000 OR typeof(NEW.retention) NOT IN ('null', 'integer')
    OR NEW.retention NOT BETWEEN 0 AND 3155760000000000 OR typeof(NEW.created_at) <> 'integer'
    OR NEW.created_at NOT BETWEEN 0 AND 253402300799999999 OR typeof(NEW.run_at) <> 'integer'
    OR NEW.run_at NOT BETWEEN 0 AND 253402300799999999 OR typeof(NEW.expires_at) NOT IN ('null', 'integer')
    OR NEW.expires_at NOT BETWEEN 0 AND 253402300799999999 OR typeof(NEW.headers) <> 'text' OR typeof(NEW.codec) <> 'text'
BEGIN
    SELECT RAISE(ABORT, 'alkstore: a row that alkstore would not have written; INSERT INTO alkstore_enqueue instead');
END;
