-- The rules of arbitration in SQL, for every server: `arbitration.judge` on the row as it is now.
--
-- {r} is the row that a claim meets. `e` is the claim, with e.now as its instant: the clock of the server when the
-- statement began. An instant that is a little old never wins anything: a lease that was alive then is left alone.
-- {r_policy} and {r_quiet} are the row's in_doubt_policy and reconcile_after_us, whose usual values are stored as NULL.

-- part: settled
{r}.status NOT IN ('running', 'in_doubt')

-- Only settled records expire.
-- part: expired
({settled} AND {r}.expires_us <= e.now)

-- part: wins
({expired} OR (
    {r}.fingerprint = e.fingerprint
    -- The same claim again, after its reply was lost, changes nothing: the reader of the row answers granted.
    AND NOT ({r}.status = 'running' AND {r}.nonce = e.nonce)
    AND (
        -- Nothing happened before: claimable at once.
        ({r}.status = 'failed' AND {r}.retryable AND NOT {r}.doubtful)
        OR (
            -- In doubt, and both policies allow the take-over.
            (
                ({r}.status = 'failed' AND {r}.retryable)
                OR {r}.status = 'in_doubt'
                OR ({r}.status = 'running' AND {r}.lease_us <= e.now)
            )
            AND (
                ({r_policy} = 'rerun' AND e.in_doubt_policy = 'rerun')
                OR (
                    {r_policy} <> 'hold' AND e.in_doubt_policy = 'reconcile'
                    AND {r}.lease_us + greatest({r_quiet}, e.reconcile_after_us) <= e.now
                )
            )
        )
    )
))
