-- 0006: the audit chain, and tokens of operators.
--
-- The head of a chain is moved by compare-and-set, in the transaction that adds the entries; nobody locks the last entry.
-- There are no triggers: with the binary log on, making one needs a privilege that few have.

CREATE TABLE IF NOT EXISTS {audit_head_table} (
    chain      BINARY(16) NOT NULL PRIMARY KEY COMMENT 'names the chain in the other tables: made of the scope',
    seq        BIGINT NOT NULL COMMENT 'number of the last entry',
    at_us      BIGINT NOT NULL COMMENT 'its instant',
    kept_from  BIGINT NOT NULL COMMENT 'entries below were old and are deleted',
    sealed     BIGINT NOT NULL COMMENT 'up to which entry the chain is sealed',
    sealed_us  BIGINT NOT NULL COMMENT 'when that was done, or when the chain began',
    scope      VARCHAR(255) NOT NULL COMMENT 'whose chain it is; empty: of nobody in particular',
    hash       BINARY(32) NOT NULL COMMENT 'of the last entry',
    seal_hash  BINARY(32) NOT NULL COMMENT 'of the last seal'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: how far the audit chain of each scope is';

CREATE TABLE IF NOT EXISTS {audit_table} (
    chain         BINARY(16) NOT NULL COMMENT 'names the chain',
    seq           BIGINT NOT NULL COMMENT 'number in its chain, from 1',
    at_us         BIGINT NOT NULL COMMENT 'when it was appended',
    ends          BIGINT NOT NULL COMMENT 'number of the entry whose action ends here; 0: none',
    seal          INT NOT NULL DEFAULT 0 COMMENT '0: what a person wrote is not sealed',
    phase         SMALLINT NOT NULL COMMENT '0 something that is over, 1 the begin of an action, 2 its end',
    scope         VARCHAR(255) NOT NULL COMMENT 'whose chain it is in',
    actor         VARCHAR(255) NOT NULL COMMENT 'who did it',
    action        VARCHAR(255) NOT NULL COMMENT 'what was done',
    target        VARCHAR(255) NOT NULL COMMENT 'to what: a reference',
    outcome       VARCHAR(255) NOT NULL COMMENT 'what came of it',
    id            BINARY(16) NOT NULL COMMENT 'random: keeps an entry from being appended twice',
    written_hash  BINARY(32) NOT NULL COMMENT 'hash of what a person wrote',
    previous      BINARY(32) NOT NULL COMMENT 'hash of the entry before',
    hash          BINARY(32) NOT NULL COMMENT 'covers all but seal and written',
    written       LONGBLOB COMMENT 'reason and details, with random bytes before them; NULL: taken out',
    PRIMARY KEY (chain, seq),
    UNIQUE KEY {prefix}audit_id (chain, id),
    KEY {prefix}audit_at (at_us, seq, chain),
    KEY {prefix}audit_target (target, at_us),
    KEY {prefix}audit_ends (chain, ends),
    CONSTRAINT {prefix}audit_phase CHECK (phase >= 0 AND phase <= 2)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: who did what to what, as a chain of hashes';

CREATE TABLE IF NOT EXISTS {audit_seal_table} (
    chain       BINARY(16) NOT NULL COMMENT 'names the chain',
    first       BIGINT NOT NULL COMMENT 'number of the first entry',
    last        BIGINT NOT NULL COMMENT 'number of the last entry',
    at_us       BIGINT NOT NULL COMMENT 'when they were sealed',
    last_hash   BINARY(32) NOT NULL COMMENT 'hash of the last entry',
    range_hash  BINARY(32) NOT NULL COMMENT 'hash over the hashes of all of them',
    previous    BINARY(32) NOT NULL COMMENT 'hash of the seal before',
    hash        BINARY(32) NOT NULL COMMENT 'covers all of this',
    PRIMARY KEY (chain, last)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: ranges of the audit chain that were hashed together';

CREATE TABLE IF NOT EXISTS {token_table} (
    name         VARCHAR(64) NOT NULL PRIMARY KEY COMMENT 'what it is called, also in the audit chain',
    created_us   BIGINT NOT NULL COMMENT 'when it was made',
    expires_us   BIGINT NOT NULL COMMENT 'from when on it is of no use',
    used_us      BIGINT COMMENT 'when it was used last, to the minute',
    revoked_us   BIGINT COMMENT 'when it was revoked',
    roles        VARCHAR(255) NOT NULL COMMENT 'names of roles, with a comma between',
    scopes       LONGTEXT COMMENT 'what it reaches, as a JSON list; NULL: all',
    created_by   VARCHAR(255) NOT NULL COMMENT 'who made it',
    revoked_by   VARCHAR(255) COMMENT 'who revoked it',
    id           BINARY(8) NOT NULL COMMENT 'finds it: the part of a token that is no secret',
    secret_hash  BINARY(32) NOT NULL COMMENT 'hash of the part that is',
    UNIQUE KEY {prefix}token_id (id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT='semel: tokens that operators sign in with; never their secrets';
