-- Notifications, version 1.2: what was sent to listeners, for a minute (W-1, Z-15).
--
-- AUTOINCREMENT: a number is never given again, and as there is one writer at a time, the numbers follow the order of the
-- commits without a gap. A listener whose next number is gone knows by that that it was too slow.

CREATE TABLE alkstore_notifications (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT    NOT NULL,
    payload TEXT    NOT NULL,
    -- By the host's clock, in microseconds since 1970-01-01 UTC, whatever the store's own clock says.
    sent_at INTEGER NOT NULL
);
