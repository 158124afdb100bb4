-- 0006: the audit chain, and tokens of operators.
--
-- The head of a chain is moved by compare-and-set, in the statement that adds the entries; nobody locks the last entry.

CREATE TABLE {audit_head_table} (
    seq        bigint NOT NULL,
    at_us      bigint NOT NULL,
    kept_from  bigint NOT NULL,
    sealed     bigint NOT NULL,
    sealed_us  bigint NOT NULL,
    scope      text COLLATE "C" NOT NULL,
    chain      bytea NOT NULL,
    hash       bytea NOT NULL,
    seal_hash  bytea NOT NULL,
    CONSTRAINT {prefix}audit_head_pk PRIMARY KEY (chain)
) WITH (fillfactor = 50);
COMMENT ON TABLE {audit_head_table} IS 'semel: how far the audit chain of each scope is';
COMMENT ON COLUMN {audit_head_table}.seq IS 'number of the last entry';
COMMENT ON COLUMN {audit_head_table}.at_us IS 'its instant';
COMMENT ON COLUMN {audit_head_table}.kept_from IS 'entries below were old and are deleted';
COMMENT ON COLUMN {audit_head_table}.sealed IS 'up to which entry the chain is sealed';
COMMENT ON COLUMN {audit_head_table}.sealed_us IS 'when that was done, or when the chain began';
COMMENT ON COLUMN {audit_head_table}.scope IS 'whose chain it is; empty: nobody''s in particular';
COMMENT ON COLUMN {audit_head_table}.chain IS 'names the chain in the other tables: made of the scope';
COMMENT ON COLUMN {audit_head_table}.hash IS 'of the last entry';
COMMENT ON COLUMN {audit_head_table}.seal_hash IS 'of the last seal';

CREATE TABLE {audit_table} (
    seq           bigint NOT NULL,
    at_us         bigint NOT NULL,
    ends          bigint NOT NULL,
    seal          integer NOT NULL DEFAULT 0,
    phase         smallint NOT NULL,
    scope         text COLLATE "C" NOT NULL,
    actor         text COLLATE "C" NOT NULL,
    action        text COLLATE "C" NOT NULL,
    target        text COLLATE "C" NOT NULL,
    outcome       text COLLATE "C" NOT NULL,
    chain         bytea NOT NULL,
    id            bytea NOT NULL,
    written_hash  bytea NOT NULL,
    previous      bytea NOT NULL,
    hash          bytea NOT NULL,
    written       bytea,
    CONSTRAINT {prefix}audit_pk PRIMARY KEY (chain, seq),
    CONSTRAINT {prefix}audit_id UNIQUE (chain, id),
    CONSTRAINT {prefix}audit_phase CHECK (phase BETWEEN 0 AND 2)
);
CREATE INDEX {prefix}audit_at ON {audit_table} (at_us, seq, chain);
CREATE INDEX {prefix}audit_target ON {audit_table} (target, at_us);
CREATE INDEX {prefix}audit_ends ON {audit_table} (chain, ends) WHERE ends <> 0;
COMMENT ON TABLE {audit_table} IS 'semel: who did what to what, as a chain of hashes';
COMMENT ON COLUMN {audit_table}.seq IS 'number in its chain, from 1';
COMMENT ON COLUMN {audit_table}.at_us IS 'when it was appended';
COMMENT ON COLUMN {audit_table}.ends IS 'number of the entry whose action ends here; 0: none';
COMMENT ON COLUMN {audit_table}.seal IS '0: what a person wrote is not sealed';
COMMENT ON COLUMN {audit_table}.phase IS '0 something that is over, 1 the begin of an action, 2 its end';
COMMENT ON COLUMN {audit_table}.scope IS 'whose chain it is in';
COMMENT ON COLUMN {audit_table}.actor IS 'who did it';
COMMENT ON COLUMN {audit_table}.action IS 'what was done';
COMMENT ON COLUMN {audit_table}.target IS 'to what: a reference';
COMMENT ON COLUMN {audit_table}.outcome IS 'what came of it';
COMMENT ON COLUMN {audit_table}.chain IS 'names the chain';
COMMENT ON COLUMN {audit_table}.id IS 'random: keeps an entry from being appended twice';
COMMENT ON COLUMN {audit_table}.written_hash IS 'hash of what a person wrote';
COMMENT ON COLUMN {audit_table}.previous IS 'hash of the entry before';
COMMENT ON COLUMN {audit_table}.hash IS 'covers all but seal and written';
COMMENT ON COLUMN {audit_table}.written IS 'reason and details, with random bytes before them; NULL: taken out';

-- An entry is never changed, but that what a person wrote may be taken out; it goes only below what is kept.
CREATE FUNCTION {audit_function}() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'semel: the audit chain is never emptied';
    END IF;
    IF TG_OP = 'DELETE' THEN
        IF EXISTS (SELECT 1 FROM {audit_head_table} AS h WHERE h.chain = OLD.chain AND OLD.seq < h.kept_from) THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'semel: an audit entry is deleted only when it has expired';
    END IF;
    IF NEW.written IS NULL THEN
        OLD.written := NULL;
        IF NEW = OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'semel: an audit entry is never changed';
END
$body$;
CREATE TRIGGER {prefix}audit_guard BEFORE UPDATE OR DELETE ON {audit_table}
    FOR EACH ROW EXECUTE FUNCTION {audit_function}();
CREATE TRIGGER {prefix}audit_guard_all BEFORE TRUNCATE ON {audit_table}
    FOR EACH STATEMENT EXECUTE FUNCTION {audit_function}();

CREATE TABLE {audit_seal_table} (
    first       bigint NOT NULL,
    last        bigint NOT NULL,
    at_us       bigint NOT NULL,
    chain       bytea NOT NULL,
    last_hash   bytea NOT NULL,
    range_hash  bytea NOT NULL,
    previous    bytea NOT NULL,
    hash        bytea NOT NULL,
    CONSTRAINT {prefix}audit_seal_pk PRIMARY KEY (chain, last)
);
COMMENT ON TABLE {audit_seal_table} IS 'semel: ranges of the audit chain that were hashed together';
COMMENT ON COLUMN {audit_seal_table}.first IS 'number of the first entry';
COMMENT ON COLUMN {audit_seal_table}.last IS 'number of the last entry';
COMMENT ON COLUMN {audit_seal_table}.at_us IS 'when they were sealed';
COMMENT ON COLUMN {audit_seal_table}.chain IS 'names the chain';
COMMENT ON COLUMN {audit_seal_table}.last_hash IS 'hash of the last entry';
COMMENT ON COLUMN {audit_seal_table}.range_hash IS 'hash over the hashes of all of them';
COMMENT ON COLUMN {audit_seal_table}.previous IS 'hash of the seal before';
COMMENT ON COLUMN {audit_seal_table}.hash IS 'covers all of this';

CREATE TABLE {token_table} (
    created_us   bigint NOT NULL,
    expires_us   bigint NOT NULL,
    used_us      bigint,
    revoked_us   bigint,
    name         text COLLATE "C" NOT NULL,
    roles        text COLLATE "C" NOT NULL,
    scopes       text COLLATE "C",
    created_by   text COLLATE "C" NOT NULL,
    revoked_by   text COLLATE "C",
    id           bytea NOT NULL,
    secret_hash  bytea NOT NULL,
    CONSTRAINT {prefix}token_pk PRIMARY KEY (name),
    CONSTRAINT {prefix}token_id UNIQUE (id)
);
COMMENT ON TABLE {token_table} IS 'semel: tokens that operators sign in with; never their secrets';
COMMENT ON COLUMN {token_table}.created_us IS 'when it was made';
COMMENT ON COLUMN {token_table}.expires_us IS 'from when on it is of no use';
COMMENT ON COLUMN {token_table}.used_us IS 'when it was used last, to the minute';
COMMENT ON COLUMN {token_table}.revoked_us IS 'when it was revoked';
COMMENT ON COLUMN {token_table}.name IS 'what it is called, also in the audit chain';
COMMENT ON COLUMN {token_table}.roles IS 'names of roles, with a comma between';
COMMENT ON COLUMN {token_table}.scopes IS 'what it reaches, as a JSON list; NULL: all';
COMMENT ON COLUMN {token_table}.created_by IS 'who made it';
COMMENT ON COLUMN {token_table}.revoked_by IS 'who revoked it';
COMMENT ON COLUMN {token_table}.id IS 'finds it: the part of a token that is no secret';
COMMENT ON COLUMN {token_table}.secret_hash IS 'hash of the part that is';
