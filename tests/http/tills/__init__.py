"""Tills: one small application of every framework, with rows and records in one database, for a table of cases.

Each books a payment on `POST /pays`, `/refuses` and so on, in the transaction that `transaction=` opens. A further
framework or client library is a line in `members`.
"""
